// What one line says of a job (declared in attachment.h).
#include <fmt/format.h>

#include "client/frame/table.h"
#include "client/jobs/attachment.h"
#include "client/request/job_list.h"

namespace billow::client {

int exit_code_of(const Json& job) {
  const std::string_view state = job["state"].str_or("");
  return static_cast<int>(job["exit_code"].int_or(state == "succeeded" ? 0 : 1) & 0xFF);
}

std::string without_digits(std::string text) {
  std::erase_if(text, [](char c) { return c >= '0' && c <= '9'; });
  return text;
}

std::string waiting_line(const Json& job) {
  const std::string reason = printable(job["reason"].str_or(""));
  return fmt::format("job {} is {}{}{}", job["label"].str_or("?"), job["state"].str_or("queued"),
                     reason.empty() ? "" : ": ", reason);
}

std::string summary_of(const Json& job, WallTime now) {
  std::string text = fmt::format("job {} {}", job["label"].str_or("?"), job["state"].str_or("?"));
  // An array has no start time; its elements have.
  const Json& from = job["started_at"].is_string() ? job["started_at"] : job["submitted_at"];
  const std::string time =
      job["ran_s"].is_number() ? run_time(job, now) : span_between(from, job["ended_at"], now);
  if (time != "-")
    text += " · " + time;
  if (const auto s = job["suspended_s"].int_or(0); s > 0)
    text += fmt::format(" (plus {} suspended)", whole_seconds(s));
  if (const auto cost = job["cost"].str_or(""); !cost.empty())
    text += fmt::format(" · {}", cost);
  if (const auto exit = job.at("exit", "text").str_or(""); !exit.empty() && exit != "done")
    text += fmt::format(" · {}", exit);
  return text;
}

}  // namespace billow::client
