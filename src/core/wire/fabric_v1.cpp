#include "core/wire/fabric_v1.h"

#include "base/limits.h"
#include "core/wire/codec.h"

namespace billow::wire::fabric_v1 {
namespace {

constexpr std::string_view opening = "{\"type\":\"fabric_";

template <class M>
std::string encode_fabric(const M& message) {
  std::string json = to_json_text(message);
  json.insert(1, std::string("\"type\":\"") + M::kind + (json.size() > 2 ? "\"," : "\""));
  std::string out(4, '\0');
  for (int i = 0; i < 4; ++i)
    out[static_cast<std::size_t>(i)] = static_cast<char>(json.size() >> (8 * i));
  return out + json;
}

template <class M>
Result<M> decode_fabric(std::string_view frame) {
  if (!is_fabric(frame) || frame.size() > limits::agent_frame_bytes_max)
    return fail(Code::invalid, "no frame of a fabric check");
  const auto json = BILLOW_TRY(parse_json(frame.substr(4)));
  if (json["type"].str_or("") != M::kind)
    return fail(Code::invalid, "the other side's message of a fabric check");
  return from_json<M>(json);
}

}  // namespace

std::string encode(const Ask& ask) {
  return encode_fabric(ask);
}
std::string encode(const Answer& answer) {
  return encode_fabric(answer);
}
bool is_fabric(std::string_view frame) {
  return frame.size() > 4 && frame.substr(4).starts_with(opening);
}
Result<Ask> decode_ask(std::string_view frame) {
  return decode_fabric<Ask>(frame);
}
Result<Answer> decode_answer(std::string_view frame) {
  return decode_fabric<Answer>(frame);
}

}  // namespace billow::wire::fabric_v1
