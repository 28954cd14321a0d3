#include "server/retention_options.h"

#include <fmt/format.h>

#include "base/text.h"
#include "client/frame/values.h"

namespace billow::client {
namespace {

Status set_kept_time(const Parsed& parsed, const char* name, std::optional<Duration>& time) {
  if (!parsed.has(name))
    return {};
  const std::string text = parsed.get(name);
  time.reset();
  if (text == "forever")
    return {};
  const auto given = duration_with_unit(text);
  if (!given || *given < seconds(1))
    return fail(Code::invalid,
                fmt::format("--{} {} is not a time of at least one second", name, text),
                "use a form like 90d, or forever");
  time = *given;
  return {};
}

}  // namespace

Status set_retention(const Parsed& parsed, Retention& retention) {
  BILLOW_TRY_VOID(set_kept_time(parsed, "keep-events", retention.events));
  BILLOW_TRY_VOID(set_kept_time(parsed, "keep-audit", retention.audit));
  // Who gives a time means it, however many events there are.
  if (parsed.has("keep-events"))
    retention.events_max.reset();
  retention.chosen =
      parsed.has("keep-events") || parsed.has("keep-events-max") || parsed.has("keep-audit");
  if (!parsed.has("keep-events-max"))
    return {};
  const std::string text = parsed.get("keep-events-max");
  retention.events_max.reset();
  if (text == "unlimited")
    return {};
  const auto number = parse_int(text, 1, INT64_MAX);
  if (!number)
    return fail(Code::invalid, fmt::format("--keep-events-max {} is not a positive number", text),
                "use a form like 5000000, or unlimited");
  retention.events_max = static_cast<std::uint64_t>(*number);
  return {};
}

}  // namespace billow::client
