// Frames of HTTP/2 written by hand, right or wrong, and read back: for tests that must send what no
// library sends. Fields are literals without compression, unless a test packs its own block.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace billow::http2_frames {

using Fields = std::vector<std::pair<std::string, std::string>>;

enum Type : std::uint8_t {
  data = 0,
  headers = 1,
  priority = 2,
  rst_stream = 3,
  settings = 4,
  ping = 6,
  goaway = 7,
  window_update = 8,
  continuation = 9
};
constexpr std::uint8_t end_stream = 1, end_headers = 4, ack = 1;

inline std::string number(std::uint32_t n) {
  std::string out;
  for (int shift = 24; shift >= 0; shift -= 8)
    out += static_cast<char>(n >> shift & 0xff);
  return out;
}

inline std::string frame(Type type,
                         std::uint8_t flags,
                         std::uint32_t id,
                         std::string_view payload) {
  std::string out = number(static_cast<std::uint32_t>(payload.size())).substr(1);
  out += static_cast<char>(type);
  out += static_cast<char>(flags);
  return out.append(number(id)).append(payload);
}

inline std::string hpack_length(std::size_t n) {
  std::string out;
  if (n < 127)
    return out += static_cast<char>(n);
  out += '\x7f';
  for (n -= 127; n >= 128; n /= 128)
    out += static_cast<char>(n % 128 + 128);
  return out += static_cast<char>(n);
}

inline std::string block(const Fields& fields) {
  std::string out;
  for (const auto& [name, value] : fields)
    out += '\0' + hpack_length(name.size()) + name + hpack_length(value.size()) + value;
  return out;
}

inline std::string head(std::uint32_t id, const Fields& fields, bool end = true) {
  return frame(headers, static_cast<std::uint8_t>(end_headers | (end ? end_stream : 0)), id,
               block(fields));
}

inline Fields request(std::string method = "GET", std::string path = "/f/app/x", Fields more = {}) {
  Fields out = {{":method", std::move(method)},
                {":scheme", "http"},
                {":path", std::move(path)},
                {":authority", "localhost"}};
  out.insert(out.end(), more.begin(), more.end());
  return out;
}

inline std::string preface() {
  return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(settings, 0, 0, "");
}

struct Frame {
  Type type;
  std::uint8_t flags;
  std::uint32_t id;
  std::string payload;
  // Of RST_STREAM and GOAWAY.
  std::uint32_t error() const {
    const std::size_t at = type == goaway ? 4 : 0;
    std::uint32_t out = 0;
    for (std::size_t i = at; i < at + 4 && i < payload.size(); ++i)
      out = out << 8 | static_cast<std::uint8_t>(payload[i]);
    return out;
  }
};

// The whole frames in these bytes.
inline std::vector<Frame> read(std::string_view in) {
  std::vector<Frame> out;
  const auto byte = [&](std::size_t at) {
    return static_cast<std::uint8_t>(in[at]);
  };
  while (in.size() >= 9) {
    const std::size_t length = byte(0) << 16 | byte(1) << 8 | byte(2);
    if (in.size() < 9 + length)
      break;
    out.push_back(
        {static_cast<Type>(byte(3)), byte(4),
         static_cast<std::uint32_t>(byte(5) << 24 | byte(6) << 16 | byte(7) << 8 | byte(8)),
         std::string(in.substr(9, length))});
    in.remove_prefix(9 + length);
  }
  return out;
}

// The first of its kind; null: there is none.
inline const Frame* first(const std::vector<Frame>& frames, Type type, std::uint32_t id) {
  for (const auto& each : frames)
    if (each.type == type && each.id == id)
      return &each;
  return nullptr;
}

}  // namespace billow::http2_frames
