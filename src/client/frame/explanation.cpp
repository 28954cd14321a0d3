#include "client/frame/explanation.h"

#include <fmt/format.h>

#include "client/frame/table.h"
#include "client/frame/when.h"

namespace billow::client {
namespace {

std::string queue_text(const Json& why) {
  if (why["ahead"].is_null())
    return {};
  const std::uint64_t ahead = why["ahead"].uint_or(0);
  if (ahead == 0)
    return "  place in the queue: first\n";
  return fmt::format(
      "  place in the queue: {} waiting job{} of the same or a higher priority {} "
      "submitted earlier\n",
      ahead, ahead == 1 ? "" : "s", ahead == 1 ? "was" : "were");
}

// "and should start in 39 min, at 14:40, at the latest; probably in 9 min, at 14:10". The time that
// people plan by comes first: what is expected now passes more often (promise_test.cpp).
std::string start_text(const Json& why, WallTime now) {
  const std::string expected = time_text(why["earliest_start"], now, "");
  if (!why["latest_start"].is_string())
    return fmt::format(" and should start {}, if nothing changes", expected);
  const bool same = why["latest_start"].str_or("") == why["earliest_start"].str_or("");
  return fmt::format(" and should start {}, at the latest{}",
                     time_text(why["latest_start"], now, ""),
                     same ? "" : fmt::format("; probably {}", expected));
}

}  // namespace

std::string explanation_sentence(const std::string& label, const Json& why, WallTime now) {
  const auto state = why["state"].str_or("?");
  if (state == "succeeded" || state == "failed")
    return fmt::format("job {} has {}", label, state);
  std::string text = fmt::format("job {} {} {}", label, state == "stopped" ? "was" : "is", state);
  if (state != "queued" && state != "held" && state != "suspended")
    return text;
  if (why["earliest_start"].is_string())
    return text + start_text(why, now);
  if (state != "queued")
    return text;
  const auto unknown = why["start_unknown"].str_or("");
  return text + (unknown.empty() ? std::string("; when it starts is not known")
                                 : fmt::format("; when it starts is not known, because {}",
                                               printable(unknown)));
}

std::string explanation_text(const Json& why, WallTime now) {
  std::string text;
  for (const Json& reason : why["reasons"].items())
    if (reason["text"].str_or("") != "done")  // the sentence above says that it succeeded
      text += fmt::format("  {}\n", in_local_time(printable(reason["text"].str_or("?")), now));
  if (why["earliest_start"].is_string())
    text += fmt::format("  expected start if nothing changes: {}\n",
                        time_text(why["earliest_start"], now, "unknown"));
  text += queue_text(why);
  for (const Json& holder : why["holders"].items())
    text += fmt::format("  GPUs in use by {}\n",
                        in_local_time(printable(holder["text"].str_or("?")), now));
  if (const auto change = why["would_start_now"].str_or(""); !change.empty())
    text += fmt::format("  what would help: {}\n", in_local_time(printable(change), now));
  if (const auto expected = why.at("expected", "text").str_or(""); !expected.empty())
    text += fmt::format("  {}\n", printable(expected));
  return text;
}

}  // namespace billow::client
