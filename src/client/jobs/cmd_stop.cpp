// stop and cancel: ending jobs, and a question where that would delete somebody's work.
#include <fmt/format.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "client/frame/commands.h"
#include "client/frame/console.h"
#include "client/frame/table.h"
#include "client/frame/terminal.h"
#include "client/frame/values.h"
#include "client/jobs/ending.h"
#include "client/request/job_list.h"
#include "client/request/job_names.h"

namespace billow::client {
namespace {

constexpr OptionSpec stop_options[] = {
    {"force", 'f', nullptr, "send SIGKILL at once, without grace period or confirmation"},
    {"reason", 0, "TEXT", "reason to record"},
    {"wait", 'w', nullptr, "wait until the jobs have ended"},
    {"quiet", 'q', nullptr, "print nothing"},
};

// "has failed", and of one whose node could not be told why it was not waited for.
std::string ended_text(const Json& job) {
  const std::string state(job["state"].str_or("stopped"));
  const bool active = state == "succeeded" || state == "failed";
  const std::string text = fmt::format("{} {}", active ? "has" : "is", state);
  const auto why = job.at("exit", "text").str_or("");
  return why.find("its node does not answer") == std::string::npos
             ? text
             : fmt::format("{}; {}", text, why);
}

// A job that works in a copy of its directory loses what it wrote there, except its outputs. Where
// it has none, the person at this terminal decides.
bool may_lose_its_directory(Client& client, const std::string& label) {
  const auto job = client.get(path_of_job(label, ""));
  if (!job || (*job)["state"].str_or("") != "running" || !(*job)["copied"].bool_or(false) ||
      !(*job)["kept"].items().empty() || !(*job)["outputs"].items().empty())
    return true;
  (void)write_all(STDERR_FILENO,
                  fmt::format("job {0} works in a copy of its directory, which is deleted when it "
                              "ends, and names no --output.\nTo keep files, copy them first: "
                              "billow cp {0}:PATH .\nStop it now? [y/N] ",
                              label));
  const OnInterrupt left(fmt::format("job {} was not stopped", label));
  char answer[16] = {};
  const ssize_t got = ::read(STDIN_FILENO, answer, sizeof answer - 1);
  const bool yes = got > 0 && (answer[0] == 'y' || answer[0] == 'Y');
  if (!yes)
    say(fmt::format("job {} was not stopped", label));
  return yes;
}

int cmd_stop(const Parsed& parsed) {
  const auto words = job_operands(parsed, "stop");
  if (!words)
    return report_usage(words.error());
  auto client = connect(parsed);
  if (!client)
    return report(client.error());
  const auto jobs = jobs_of(*client, *words, NameUse::change);
  if (!jobs)
    return report(jobs.error());
  Json body = Json::object({{"reason", parsed.get("reason")}, {"force", parsed.has("force")}});
  const bool asks = !parsed.has("force") && !parsed.has("quiet") && !parsed.has("json") &&
                    ::isatty(STDIN_FILENO) == 1 && ::isatty(STDERR_FILENO) == 1;
  int code = 0;
  for (const std::string& label : *jobs) {
    if (asks && !may_lose_its_directory(*client, label)) {
      code = 1;
      continue;
    }
    auto job = client->post(path_of_job(label, "stop"), body.dump());
    if (job && parsed.has("wait")) {
      const OnInterrupt left(
          parsed.has("quiet") ? ""
                              : fmt::format("no longer waiting; job {} is being stopped", label));
      job = wait_for_end(*client, label, std::nullopt, true);
    }
    if (!job) {
      code = report(job.error());  // the others are still asked
      continue;
    }
    if (parsed.has("json"))
      print_json(*job);
    else if (!parsed.has("quiet"))
      print(fmt::format("job {} {}\n", label,
                        (*job)["final"].bool_or(false) ? ended_text(*job) : "is being stopped"));
  }
  return code;
}

}  // namespace

void add_stop_commands(CommandTable& table) {
  CommandSpec stop{
      .name = "stop",
      .summary = "stop jobs: SIGTERM, then SIGKILL after the grace period",
      .example = "billow stop 12\nbillow stop --force 12.3",
      .run = cmd_stop,
      .usage = "JOB…",
      .details =
          "The number of an array stops all its elements. A name means your own job "
          "with that name; if several live jobs share it, none is stopped.\nAt a "
          "terminal, stop asks first if a running job works in a copy of its directory "
          "and names no --output:\nthat copy is deleted when the job ends.",
      .options = {stop_options},
      .operands = Operands::some,
      .completes = Completes::job,
      .group = "jobs"};
  table.push_back(stop);
  stop.name = "cancel";
  stop.summary = "stop jobs (same as stop)";
  stop.example = "billow cancel 12";
  stop.alias_of = "stop";
  table.push_back(std::move(stop));
}

}  // namespace billow::client
