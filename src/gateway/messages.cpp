#include "gateway/messages.h"

#include "core/wire/codec.h"

namespace billow::gateway {
namespace {

template <class V>
std::string encode_any(const V& message) {
  std::string out;
  visit(
      [&](const auto& m) {
        using T = std::decay_t<decltype(m)>;
        out += "{\"type\":\"";
        out += T::kind;
        out += '"';
        static const T standard{};
        wire::JsonWriter writer{out, reinterpret_cast<const char*>(&m),
                                reinterpret_cast<const char*>(&standard), wire::Omit::defaults,
                                false};
        T::fields(m, writer);
        out += '}';
      },
      message);
  return out;
}

template <class V>
Result<V> decode_any(std::string_view text) {
  const Json json = BILLOW_TRY(parse_json(text));
  return wire::variant_from_json<V>(json["type"].str_or(""), json);
}

}  // namespace

std::string encode(const ToGateway& message) {
  return encode_any(message);
}
std::string encode(const FromGateway& message) {
  return encode_any(message);
}
Result<ToGateway> decode_to_gateway(std::string_view text) {
  return decode_any<ToGateway>(text);
}
Result<FromGateway> decode_from_gateway(std::string_view text) {
  return decode_any<FromGateway>(text);
}

}  // namespace billow::gateway
