#include "net/http/ws_frame.h"

#include <openssl/evp.h>

#include "base/crypto.h"
#include "base/text.h"
#include "net/wipe.h"

namespace billow::net {
namespace {

void apply_mask(char* data, std::size_t length, const unsigned char* mask) {
  for (std::size_t i = 0; i < length; ++i)
    data[i] = static_cast<char>(static_cast<unsigned char>(data[i]) ^ mask[i & 3]);
}

bool known_op(unsigned op) {
  return op <= 2 || (op >= 8 && op <= 10);
}
bool control(WsOp op) {
  return static_cast<unsigned>(op) >= 8;
}

bool valid_close_code(int code) {
  return (code >= 1000 && code <= 1014 && code != 1004 && code != 1005 && code != 1006) ||
         (code >= 3000 && code <= 4999);
}

}  // namespace

std::string ws_frame(WsOp op, std::string_view payload, bool mask) {
  std::string out;
  out.reserve(payload.size() + 14);
  out += static_cast<char>(0x80 | static_cast<unsigned>(op));
  const char mask_bit = mask ? static_cast<char>(0x80) : 0;
  if (payload.size() < 126) {
    out += static_cast<char>(mask_bit | static_cast<char>(payload.size()));
  } else {
    const int bytes = payload.size() <= 0xffff ? 2 : 8;
    out += static_cast<char>(mask_bit | (bytes == 2 ? 126 : 127));
    for (int i = bytes - 1; i >= 0; --i)
      out += static_cast<char>(static_cast<std::uint64_t>(payload.size()) >> (8 * i));
  }
  if (!mask)
    return out.append(payload);
  const std::uint64_t random = random_u64();
  unsigned char key[4];
  std::memcpy(key, &random, sizeof key);
  out.append(reinterpret_cast<const char*>(key), sizeof key);
  const std::size_t at = out.size();
  out.append(payload);
  apply_mask(out.data() + at, payload.size(), key);
  return out;
}

std::string ws_close_frame(int code, std::string_view reason, bool mask) {
  std::string payload{static_cast<char>(code >> 8), static_cast<char>(code)};
  // A control frame carries at most 125 bytes, and the reason must stay UTF-8 when cut.
  reason = reason.substr(0, 123);
  while (!reason.empty() && !valid_utf8(reason))
    reason.remove_suffix(1);
  payload += reason;
  return ws_frame(WsOp::close, payload, mask);
}

std::unexpected<Error> WsReader::refuse(int close_code, Code code, std::string message) {
  close_code_ = close_code;
  return fail(code, std::move(message));
}

void WsReader::feed(std::string_view data) {
  if (offset_ == buffer_.size()) {
    buffer_.clear();
    offset_ = 0;
  } else if (offset_ > buffer_.size() / 2) {
    buffer_.erase(0, offset_);
    offset_ = 0;
  }
  buffer_.append(data);
}

Result<std::optional<WsReader::Message>> WsReader::next() {
  for (;;) {
    const auto* at = reinterpret_cast<const unsigned char*>(buffer_.data()) + offset_;
    const std::size_t have = buffer_.size() - offset_;
    if (have < 2)
      return std::optional<Message>{};
    const bool fin = at[0] & 0x80;
    const unsigned op_bits = at[0] & 0x0f;
    const bool masked = at[1] & 0x80;
    std::uint64_t length = at[1] & 0x7f;
    if ((at[0] & 0x70) || !known_op(op_bits))
      return refuse(1002, Code::invalid, "a WebSocket frame has reserved bits or an unknown kind");
    if (masked != (role_ == Role::server))
      return refuse(1002, Code::invalid, "a WebSocket frame has the wrong masking");
    const auto op = static_cast<WsOp>(op_bits);
    if (control(op) && (length > 125 || !fin))
      return refuse(1002, Code::invalid, "a WebSocket control frame is too long or fragmented");
    const std::size_t length_bytes = length == 126 ? 2 : length == 127 ? 8 : 0;
    const std::size_t header_bytes = 2 + length_bytes + (masked ? 4 : 0);
    if (have < header_bytes)
      return std::optional<Message>{};
    if (length_bytes > 0) {
      length = 0;
      for (std::size_t i = 0; i < length_bytes; ++i)
        length = length << 8 | at[2 + i];
      if (length < (length_bytes == 2 ? 126u : 0x10000u))
        return refuse(1002, Code::invalid,
                      "the length of a WebSocket frame is not in its shortest form");
    }
    if (!control(op) && (length > bytes_max_ || message_.size() + length > bytes_max_))
      return refuse(1009, Code::too_large,
                    fmt::format("a WebSocket message is larger than {} bytes", bytes_max_));
    if (have - header_bytes < length)
      return std::optional<Message>{};
    std::string payload(buffer_, offset_ + header_bytes, static_cast<std::size_t>(length));
    if (masked) {
      unsigned char key[4];
      std::memcpy(key, at + header_bytes - 4, sizeof key);
      apply_mask(payload.data(), payload.size(), key);
    }
    wipe_used(buffer_.data() + offset_, header_bytes + static_cast<std::size_t>(length));
    offset_ += header_bytes + static_cast<std::size_t>(length);
    auto message = BILLOW_TRY(take_frame(fin, op, std::move(payload)));
    if (message)
      return message;
  }
}

Result<std::optional<WsReader::Message>> WsReader::take_frame(bool fin,
                                                              WsOp op,
                                                              std::string payload) {
  if (control(op))
    return std::optional<Message>{Message{op, std::move(payload)}};
  if ((op == WsOp::continuation) != message_op_.has_value())
    return refuse(1002, Code::invalid, "the fragments of a WebSocket message are out of order");
  if (!message_op_)
    message_op_ = op;
  if (message_.empty())
    message_ = std::move(payload);
  else
    message_ += payload;
  if (!fin)
    return std::optional<Message>{};
  Message out{*message_op_, std::move(message_)};
  message_.clear();
  message_op_.reset();
  if (out.op == WsOp::text && !valid_utf8(out.payload))
    return refuse(1007, Code::invalid, "a WebSocket text message is not UTF-8");
  return std::optional<Message>{std::move(out)};
}

Result<WsClose> parse_ws_close(std::string_view payload) {
  if (payload.empty())
    return WsClose{};
  if (payload.size() == 1)
    return fail(Code::invalid, "the code of a WebSocket close frame is truncated");
  WsClose out;
  out.code = static_cast<unsigned char>(payload[0]) << 8 | static_cast<unsigned char>(payload[1]);
  out.reason = payload.substr(2);
  if (!valid_close_code(out.code) || !valid_utf8(out.reason))
    return fail(Code::invalid, "a WebSocket close frame has an invalid code or reason");
  return out;
}

std::string ws_accept_key(std::string_view key) {
  const std::string text = std::string(key) + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  ::EVP_Digest(text.data(), text.size(), digest, &length, ::EVP_sha1(), nullptr);
  return base64(std::string_view(reinterpret_cast<const char*>(digest), length));
}

bool is_ws_upgrade(Method method, const Headers& headers) {
  return method == Method::get && headers.has_token("Upgrade", "websocket") &&
         headers.has_token("Connection", "upgrade");
}

Result<Headers> ws_accept(Method method, const Headers& request, std::string_view subprotocol) {
  if (!is_ws_upgrade(method, request))
    return fail(Code::invalid, "this address requires a WebSocket",
                "send GET with Upgrade: websocket");
  if (request.get("Sec-WebSocket-Version") != "13")
    return fail(Code::invalid, "only WebSocket version 13 is supported");
  std::string nonce;
  const auto key = request.get("Sec-WebSocket-Key");
  if (request.count("Sec-WebSocket-Key") != 1 || !base64_decode(key, nonce) || nonce.size() != 16)
    return fail(Code::invalid, "Sec-WebSocket-Key must be 16 bytes in base64");
  Headers out{{"Upgrade", "websocket"},
              {"Connection", "Upgrade"},
              {"Sec-WebSocket-Accept", ws_accept_key(key)}};
  if (!subprotocol.empty() && request.has_token("Sec-WebSocket-Protocol", subprotocol))
    out.add("Sec-WebSocket-Protocol", std::string(subprotocol));
  return out;
}

WsHello ws_hello(std::string_view subprotocol) {
  WsHello out;
  out.key = base64(random_bytes(16));
  out.headers = {{"Upgrade", "websocket"},
                 {"Connection", "Upgrade"},
                 {"Sec-WebSocket-Key", out.key},
                 {"Sec-WebSocket-Version", "13"}};
  if (!subprotocol.empty())
    out.headers.add("Sec-WebSocket-Protocol", std::string(subprotocol));
  return out;
}

Status check_ws_answer(int status, const Headers& headers, std::string_view key) {
  if (status != 101)
    return fail(status >= 400 ? code_of_status(status) : Code::unavailable,
                fmt::format("the server answered {} {} instead of opening a WebSocket", status,
                            status_text(status)));
  if (!headers.has_token("Upgrade", "websocket") || !headers.has_token("Connection", "upgrade") ||
      headers.get("Sec-WebSocket-Accept") != ws_accept_key(key))
    return fail(Code::unavailable, "the server's WebSocket answer does not match the request",
                "check that this is a Billow head");
  return {};
}

}  // namespace billow::net
