#include "client/frame/explanation.h"

#include <fmt/format.h>

#include "client/frame/table.h"
#include "client/frame/when.h"

namespace billow::client {

std::string explanation_text(const Json& why, WallTime now) {
  std::string text;
  for (const Json& reason : why["reasons"].items())
    text += fmt::format("  {}\n", printable(reason["text"].str_or("?")));
  if (const auto change = why["would_start_now"].str_or(""); !change.empty())
    text += fmt::format("  what would help: {}\n", printable(change));
  if (why["earliest_start"].is_string())
    text += fmt::format("  earliest start if nothing changes: {}\n",
                        time_text(why["earliest_start"], now, "unknown"));
  if (const auto expected = why.at("expected", "text").str_or(""); !expected.empty())
    text += fmt::format("  {}\n", printable(expected));
  return text;
}

}  // namespace billow::client
