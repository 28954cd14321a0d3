#include "core/wire/agent_v1.h"

#include "base/limits.h"
#include "core/wire/codec.h"
#include "core/wire/text_reader.h"
#include "core/wire/tunnel.h"

namespace billow::wire::agent_v1 {
namespace {

template <class V>
std::string encode_any(const V& message, std::string_view blob) {
  std::string out(4, '\0');
  visit(
      [&](const auto& m) {
        using T = std::decay_t<decltype(m)>;
        out += "{\"type\":\"";
        out += T::kind;
        out += '"';
        static const T standard{};
        JsonWriter writer{out, reinterpret_cast<const char*>(&m),
                          reinterpret_cast<const char*>(&standard), Omit::defaults, false};
        T::fields(m, writer);
        out += '}';
      },
      message);
  const auto length = static_cast<std::uint32_t>(out.size() - 4);
  for (int i = 0; i < 4; ++i)
    out[static_cast<std::size_t>(i)] = static_cast<char>(length >> (8 * i));
  out += blob;
  return out;
}

// A message as encode_any writes it; false: in another form.
template <class V>
bool read_message(std::string_view text, V& message) {
  TextReader reader(text);
  TextMembers members(reader);
  std::string kind;
  members("type", kind);
  const auto* alternative = VariantTextReader<V>::find(kind);
  if (!alternative)
    return false;
  message = alternative->make();
  alternative->read_fields(members, message);
  members.finish();
  return reader.complete();
}

template <class V>
Result<Frame<V>> decode_any(std::string_view frame) {
  if (frame.size() < 4 || frame.size() > limits::agent_frame_bytes_max)
    return fail(Code::invalid, "agent frame of a wrong size");
  std::uint32_t length = 0;
  for (int i = 0; i < 4; ++i)
    length |=
        static_cast<std::uint32_t>(static_cast<unsigned char>(frame[static_cast<std::size_t>(i)]))
        << (8 * i);
  if (length > frame.size() - 4)
    return fail(Code::invalid, "agent frame cut short");
  if (V message; read_message(frame.substr(4, length), message))
    return Frame<V>{std::move(message), std::string(frame.substr(4 + length))};
  const auto json = parse_json(frame.substr(4, length));
  if (!json)
    return pass(json.error(), "agent frame");
  auto message = variant_from_json<V>((*json)["type"].str_or(""), *json);
  if (!message)
    return pass(message.error(), "agent frame");
  return Frame<V>{std::move(*message), std::string(frame.substr(4 + length))};
}

// Never the length of a frame's JSON: an agent or head without tunnels reports that it cannot read
// such a frame, and continues.
constexpr std::string_view tunnel_mark("\xfe\xff\xff\xff", 4);

}  // namespace

bool is_tunnel_frame(std::string_view frame) {
  return frame.starts_with(tunnel_mark);
}
std::string encode_tunnel(const Tunnelled& message, std::string_view blob) {
  return std::string(tunnel_mark) + encode_any(message, blob);
}
Result<TunnelFrame> decode_tunnel(std::string_view frame) {
  auto decoded = BILLOW_TRY(decode_any<Tunnelled>(frame.substr(tunnel_mark.size())));
  return TunnelFrame{std::move(decoded.message), std::move(decoded.blob)};
}

std::string encode(const FromAgent& message, std::string_view blob) {
  return encode_any(message, blob);
}
std::string encode(const ToAgent& message, std::string_view blob) {
  return encode_any(message, blob);
}
Result<Frame<FromAgent>> decode_from_agent(std::string_view frame) {
  return decode_any<FromAgent>(frame);
}
Result<Frame<ToAgent>> decode_to_agent(std::string_view frame) {
  return decode_any<ToAgent>(frame);
}

}  // namespace billow::wire::agent_v1
