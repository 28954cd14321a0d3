#include "client/request/option_words.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/money.h"
#include "base/platform.h"
#include "base/text.h"
#include "client/frame/table.h"
#include "client/request/job_request.h"
#include "core/wire/codec.h"

namespace billow::client {
namespace {

// Members that are structs, and the schema that their options name.
std::string_view schema_of(std::string_view member) {
  return member == "place"          ? "PlaceWish"
         : member == "resources"    ? "Resources"
         : member == "surroundings" ? "Surroundings"
                                    : "";
}

std::string spaced(std::string_view name) {
  std::string out(name);
  std::ranges::replace_if(
      out, [](char c) { return c == '-' || c == '_'; }, ' ');
  return out;
}

std::string name_of_member(const std::vector<OptionField>& known,
                           std::string_view schema,
                           std::string_view member) {
  if (member == "suspendable")  // `describe` says under that name whether the job can be suspended
    return "fast suspend";
  if (member == "use_stdin")
    return "reads stdin";
  const std::string field = fmt::format("{}.{}", schema, member);
  for (const OptionField& option : known)
    if (option.field == field)
      return spaced(option.shown.name);
  return spaced(member);
}

std::string number_words(std::string_view member, const Json& value) {
  const std::int64_t number = value.int_or(0);
  if (member.ends_with("_ns"))
    return format_duration(nanoseconds(number));
  if (member.ends_with("_mib"))
    return mebibytes(number);
  if (member.ends_with("_nano_usd_per_gpu_h"))
    return fmt::format("{} per GPU and hour", format_usd(NanoUsd{number}));
  if (member == "checkpoint_signal")
    if (const std::string signal = platform::signal_name(static_cast<int>(number)); !signal.empty())
      return signal;
  return value.dump();
}

std::string value_words(std::string_view member, const Json& value) {
  if (value.is_bool())
    return value.bool_or(false) ? "yes" : "no";
  if (value.is_string())
    return std::string(value.str_or(""));
  if (value.is_number())
    return number_words(member, value);
  if (member == "array")
    if (const auto array = wire::from_json_text<ArraySpec>(value.dump()))
      return array->text();
  std::string out;
  for (const Json& item : value.items())
    out += (out.empty() ? "" : " or ") + value_words("", item);
  for (const auto& [key, item] : value.members())
    out += fmt::format("{}{}={}", out.empty() ? "" : ", ", key, value_words("", item));
  return out;
}

// The three members that --topology sets are one wish.
bool is_topology(std::string_view member) {
  return member == "close" || member == "close_required" || member == "nvlink_required";
}
std::string topology_words(const Json& place) {
  std::string out;
  if (place.find("close") || place.find("close_required"))
    out = fmt::format("nodes of one {}, {}", place["close"].str_or("zone"),
                      place["close_required"].bool_or(false) ? "required" : "preferred");
  if (place["close"].str_or("") == "anywhere")
    out = "nodes anywhere";
  if (place["nvlink_required"].bool_or(false))
    out += fmt::format("{}NVLink between the GPUs", out.empty() ? "" : ", ");
  return out;
}

}  // namespace

std::vector<OptionWords> option_words(const Json& options) {
  const std::vector<OptionField> known = option_fields();
  std::vector<OptionWords> out;
  for (const auto& [member, value] : options.members()) {
    const std::string_view schema = schema_of(member);
    if (schema.empty()) {
      out.push_back({name_of_member(known, "JobSpec", member), value_words(member, value)});
      continue;
    }
    for (const auto& [inner, inside] : value.members())
      if (member != "place" || !is_topology(inner))
        out.push_back({name_of_member(known, schema, inner), value_words(inner, inside)});
    if (std::string topology = member == "place" ? topology_words(value) : std::string();
        !topology.empty())
      out.push_back({"topology", std::move(topology)});
  }
  return out;
}

}  // namespace billow::client
