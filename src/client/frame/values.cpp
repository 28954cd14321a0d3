#include "client/frame/values.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/text.h"

namespace billow::client {
namespace {

std::string shown(std::string_view name) {
  return fmt::format("--{}", name);
}

// Whether the text is a number without a unit, other than 0.
bool is_bare_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789.") == std::string_view::npos &&
         text.find_first_of("123456789") != std::string_view::npos;
}

std::unexpected<Error> lacks_unit(std::string_view text, std::string_view hint) {
  return fail(Code::invalid, fmt::format("\"{}\" has no unit", text), std::string(hint));
}

}  // namespace

Result<Duration> duration_with_unit(std::string_view text) {
  if (is_bare_number(text))
    return lacks_unit(text, fmt::format("write {0}s for seconds or {0}m for minutes", text));
  // "1-12:00:00" and "1-12", as Slurm writes days and hours.
  if (const auto dash = text.find('-'); dash != std::string_view::npos && dash > 0) {
    const auto days = parse_int(text.substr(0, dash), 0, 36'500);
    const std::string rest = std::string(text.substr(dash + 1));
    const auto colons = std::ranges::count(rest, ':');
    const auto of_day = parse_duration(colons == 0   ? rest + ":00:00"
                                       : colons == 1 ? rest + ":00"
                                                     : rest);
    if (days && of_day && !rest.empty())
      return hours(24 * *days) + *of_day;
  }
  return parse_duration(text);
}

Result<std::uint64_t> bytes_with_unit(std::string_view text) {
  if (is_bare_number(text))
    return lacks_unit(text, fmt::format("write {0}G for gigabytes or {0}M for megabytes", text));
  return parse_bytes(text);
}

Result<double> number_option(
    const Parsed& parsed, std::string_view name, double fallback, double min, double max) {
  if (!parsed.has(name))
    return fallback;
  const std::string text = parsed.get(name);
  auto value = parse_double(text, min, max);
  if (value)
    return *value;
  Error error = value.error();
  // "1B" and "20M", as people write numbers of tokens.
  if (text.size() > 1 && std::string_view("kKmMbBgGtT").contains(text.back()) &&
      parse_double(std::string_view(text).substr(0, text.size() - 1)))
    error.hint = "write the number without a letter, e.g. 2e9 for two billion";
  return pass(std::move(error), shown(name));
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

Result<std::optional<std::int64_t>> seconds_option(const Parsed& parsed, std::string_view name) {
  if (!parsed.has(name))
    return std::nullopt;
  const auto time = duration_with_unit(parsed.get(name));
  if (!time)
    return pass(time.error(), shown(name));
  return time->ns / 1'000'000'000;
}

Result<std::optional<double>> milliseconds_option(const Parsed& parsed, std::string_view name) {
  if (!parsed.has(name))
    return std::optional<double>();
  if (is_bare_number(parsed.get(name)))
    return pass(lacks_unit(parsed.get(name), fmt::format("write {0}ms for milliseconds or {0}s for "
                                                         "seconds",
                                                         parsed.get(name)))
                    .error(),
                shown(name));
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
