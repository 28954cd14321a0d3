#include "client/frame/values.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/text.h"

namespace billow::client {
namespace {

std::string shown(std::string_view name) {
  return fmt::format("--{}", name);
}

}  // namespace

Result<double> number_option(
    const Parsed& parsed, std::string_view name, double fallback, double min, double max) {
  if (!parsed.has(name))
    return fallback;
  auto value = parse_double(parsed.get(name), min, max);
  if (!value)
    return pass(value.error(), shown(name));
  return *value;
}

Result<std::int64_t> int_option(const Parsed& parsed,
                                std::string_view name,
                                std::int64_t fallback,
                                std::int64_t min,
                                std::int64_t max) {
  if (!parsed.has(name))
    return fallback;
  auto value = parse_int(parsed.get(name), min, max);
  if (!value)
    return pass(value.error(), shown(name));
  return *value;
}

Result<std::optional<double>> milliseconds_option(const Parsed& parsed, std::string_view name) {
  if (!parsed.has(name))
    return std::optional<double>();
  auto value = parse_duration(parsed.get(name));
  if (!value)
    return pass(value.error(), shown(name));
  if (value->ns <= 0)
    return fail(Code::invalid, fmt::format("--{} must be more than zero", name));
  return std::optional<double>(static_cast<double>(value->ns) / 1e6);
}

std::vector<std::string> list_option(const Parsed& parsed, std::string_view name) {
  std::vector<std::string> out;
  for (const std::string& part : split(parsed.get(name), ','))
    if (!trim(part).empty())
      out.emplace_back(trim(part));
  return out;
}

Result<std::string> choice_option(const Parsed& parsed,
                                  std::string_view name,
                                  std::string_view fallback,
                                  std::string_view choices) {
  const std::string value = parsed.get(name, fallback);
  const std::vector<std::string> known = split(choices, ',');
  if (std::ranges::find(known, value) == known.end())
    return fail(Code::invalid, fmt::format("--{} cannot be \"{}\"", name, value),
                fmt::format("choose one of {}", join(known, ", ")));
  return value;
}

Result<std::string> required_option(const Parsed& parsed,
                                    std::string_view name,
                                    std::string_view hint) {
  const std::string value = parsed.get(name);
  if (value.empty())
    return fail(Code::invalid, fmt::format("--{} is missing", name), std::string(hint));
  return value;
}

}  // namespace billow::client
