// libFuzzer over the request parser: however the bytes are cut, the verdict is the same, and no
// byte is used twice. Built with clang and -DBILLOW_FUZZ=ON only, by `./dev fuzz`.
#include <cstdint>
#include <string>

#include "base/check.h"
#include "net/http/http_parser.h"
#include "net/http/sse.h"
#include "net/http/ws_frame.h"

namespace {
using namespace billow::net;

struct Outcome {
  bool ok = false;
  std::string target, body;
  std::size_t used = 0;
  bool operator==(const Outcome&) const = default;
};

Outcome parse(HttpParser::Kind kind, std::string_view bytes, std::size_t piece) {
  HttpParser parser(kind);
  Outcome out;
  std::string pending;
  for (std::size_t at = 0; at < bytes.size() && !parser.done(); at += piece) {
    pending.append(bytes.substr(at, piece));
    std::size_t used = 0;
    while (used < pending.size() && !parser.done()) {
      const auto step = parser.feed(std::string_view(pending).substr(used));
      if (!step)
        return {};
      BILLOW_CHECK(step->consumed <= pending.size() - used,
                   "the parser used more than it was given");
      used += step->consumed;
      out.used += step->consumed;
      out.body.append(step->body);
      if (step->consumed == 0)
        break;
    }
    pending.erase(0, used);
  }
  out.ok = parser.done();
  out.target = parser.head().target;
  return out;
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (const auto kind : {HttpParser::Kind::request, HttpParser::Kind::response}) {
    const auto whole = parse(kind, bytes, size + 1);
    const auto cut = parse(kind, bytes, 3);
    BILLOW_CHECK(whole.ok == cut.ok && (!whole.ok || whole == cut),
                 "cutting the input changed its meaning");
  }
  WsReader reader(WsReader::Role::server, 1 << 16);
  reader.feed(bytes);
  for (auto message = reader.next(); message && *message; message = reader.next()) {}
  SseParser sse([](const SseEvent&) {});
  (void)sse.feed(bytes);
  return 0;
}
