// submit: jobs that run without this program, one, one per line of a file, or by the clock.
#include <fmt/format.h>
#include <unistd.h>

#include "base/crypto.h"
#include "base/file.h"
#include "base/text.h"
#include "client/frame/commands.h"
#include "client/frame/console.h"
#include "client/frame/table.h"
#include "client/frame/terminal.h"
#include "client/jobs/ending.h"
#include "client/jobs/submission.h"
#include "client/request/environments.h"
#include "client/request/sync.h"

namespace billow::client {
namespace {

constexpr OptionSpec submit_options[] = {
    {"yes", 'y', nullptr, "rent machines without asking on the terminal"},
    {"quiet", 'q', nullptr, "print only the job number"},
    {"wait", 'W', nullptr, "wait until the job has ended and return its exit code"},
    {"lines", 0, "FILE",
     "submit one job per line of this file (- for stdin), each a shell command; the jobs share a "
     "label, lines=…",
     false, Completes::file},
};
constexpr std::size_t lines_bytes_max = 16 << 20;
std::string schedule_body(const JobRequest& request, const Environment& env) {
  std::string body = "{\"name\":";
  append_json_string(body, request.spec.name);
  body += ",\"cron\":";
  append_json_string(body, request.cron);
  return body + "," + submit_body(request, env).substr(1);
}

int add_schedule(const Parsed& parsed, JobRequest& request) {
  if (request.spec.name.empty())
    return report_usage({Code::invalid, "a schedule needs a name", "add --name nightly"});
  auto client = connect_for_job(parsed, wants_gpus(request));
  if (!client)
    return report(client.error());
  if (auto resolved = resolve_after(*client, request); !resolved)
    return report(resolved.error());
  if (auto ready = prepare_environment(*client, request); !ready)
    return report(ready.error());
  auto env = variables_for(parsed, request);
  if (!env)
    return report_usage(env.error());
  if (auto synced = sync_for_job(*client, request, parsed.has("quiet"), *env); !synced)
    return report(synced.error());
  auto made = client->post("/v1/schedules", schedule_body(request, *env));
  if (!made)
    return report(made.error());
  if (parsed.has("json"))
    print_json(*made);
  else
    print(fmt::format("created schedule {}: {} (UTC)\n", request.spec.name, request.cron));
  return 0;
}

Result<std::string> read_lines(const std::string& path) {
  if (path != "-")
    return read_file(path, lines_bytes_max);
  std::string text;
  char buffer[65536];
  for (ssize_t n;
       (n = ::read(STDIN_FILENO, buffer, sizeof buffer)) > 0 && text.size() <= lines_bytes_max;)
    text.append(buffer, static_cast<std::size_t>(n));
  return text;
}

// Many commands in one go: the working directory and the environment are looked at once, and no
// program is started for each.
int submit_lines(const Parsed& parsed) {
  if (!parsed.operands.empty())
    return report_usage(
        {Code::invalid, "--lines and a command exclude each other", "omit one of them"});
  const auto text = read_lines(parsed.get("lines"));
  if (!text)
    return report_usage(Error(text.error()).in("--lines"));
  if (text->size() > lines_bytes_max)
    return report_usage({Code::too_large, "--lines: the file exceeds 16 MiB",
                         "use an array (--array) to run one command many times"});
  std::vector<std::string> commands;
  for (const std::string& line : split(*text, '\n'))
    if (const std::string_view command = trim(line); !command.empty() && !command.starts_with('#'))
      commands.emplace_back(command);
  if (commands.empty())
    return report_usage(
        {Code::invalid,
         fmt::format("--lines {}: the file contains no commands", parsed.get("lines")),
         "write one command per line; lines that begin with # are ignored"});
  JobRequest request;
  request.spec.argv = {"/bin/sh", "-c", commands.front()};
  if (auto set = set_options(request, parsed); !set)
    return report_usage(set.error());
  if (!request.cron.empty() || !request.idempotency_key.empty())
    return report_usage({Code::invalid,
                         "--lines submits many jobs, so it excludes --cron and an idempotency key",
                         ""});
  if (auto done = complete(request); !done)
    return report_usage(done.error());
  request.spec.labels.try_emplace(lines_label, hex(random_bytes(4)));
  auto client = connect_for_job(parsed, wants_gpus(request));
  if (!client)
    return report(client.error());
  OnInterrupt left("nothing was submitted");
  const auto env = prepare(parsed, *client, request);
  if (!env)
    return report(env.error());
  std::uint64_t first = 0, last = 0;
  for (std::size_t i = 0; i < commands.size(); ++i) {
    left.say(fmt::format("{} or {} of {} commands were submitted; see `billow ps`", i, i + 1,
                         commands.size()));
    request.spec.argv.back() = commands[i];
    const auto job = ask_for_job(parsed, *client, request, *env);
    if (!job) {
      if (i > 0)
        say(fmt::format("submitted {} of {} commands", i, commands.size()));
      return report(Error(job.error()).in(commands[i]));
    }
    last = (*job)["id"].uint_or(0);
    if (i == 0)
      first = last;
    if (parsed.has("json"))
      print(job->dump() + "\n");
    else if (parsed.has("quiet"))
      print(fmt::format("{}\n", last));
  }
  if (!parsed.has("json") && !parsed.has("quiet"))
    print(commands.size() == 1 ? fmt::format("job {}\n", first)
                               : fmt::format("{} jobs, {} to {}\n", commands.size(), first, last));
  return 0;
}

int cmd_submit(const Parsed& parsed) {
  if (parsed.has("lines"))
    return submit_lines(parsed);
  auto request = request_of(parsed);
  if (!request)
    return report_usage(request.error());
  if (auto done = complete(*request); !done)
    return report_usage(done.error());
  if (!request->cron.empty())
    return add_schedule(parsed, *request);
  OnInterrupt left("nothing was submitted");
  auto client = connect_for_job(parsed, wants_gpus(*request));
  if (!client)
    return report(client.error());
  auto job = submit(parsed, *client, *request, true);
  if (!job)
    return report(job.error());
  left.say(goes_on("submitted", {fmt::format("{}", (*job)["id"].uint_or(0))}));
  if (parsed.has("json")) {
    print_json(*job);
  } else if (parsed.has("quiet")) {
    print(fmt::format("{}\n", (*job)["id"].uint_or(0)));
  } else {
    const std::uint64_t id = (*job)["id"].uint_or(0), count = (*job)["count"].uint_or(1);
    const auto reason = (*job)["reason"].str_or("");
    const bool array = count > 1 || request->spec.array;
    print(fmt::format("job {}{} {}{}{}\n", id,
                      array ? fmt::format(" ({} element{})", count, count == 1 ? "" : "s") : "",
                      (*job)["state"].str_or("queued"), reason.empty() ? "" : ": ",
                      printable(reason)));
    say_results(*request, fmt::format("{}", id));
    if (look_at(STDERR_FILENO).terminal)
      say(array ? fmt::format("elements: billow ps --array {0}; output: billow logs {0}.N", id)
                : fmt::format("output: billow logs -f {0}; why it waits: billow explain {0}", id));
  }
  if (parsed.has("wait") || request->wait)
    return wait_for_jobs(parsed, *client, {fmt::format("{}", (*job)["id"].uint_or(0))}, {});
  return 0;
}

}  // namespace

int schedule_add(const Parsed& parsed) {
  auto request = request_of(parsed);
  if (!request)
    return report_usage(request.error());
  if (auto done = complete(*request); !done)
    return report_usage(done.error());
  if (request->cron.empty())
    return report_usage({Code::invalid, "a schedule needs --cron",
                         "for example --cron \"0 3 * * *\" (every day at 3:00 UTC)"});
  return add_schedule(parsed, *request);
}

void add_submit_commands(CommandTable& table) {
  table.push_back(
      {.name = "submit",
       .summary = "queue a command or a job file and print the job number",
       .example =
           "billow submit --gpus 1 --array 0-99%10 -- python sweep.py\nbillow submit job.toml\n"
           "billow submit --gpus 1 --lines commands.txt\n"
           "billow submit --name nightly --cron \"0 3 * * *\" -- ./evaluate.sh",
       .run = cmd_submit,
       .usage = "[--] COMMAND [ARG…] | FILE.toml | SCRIPT [ARG…]",
       .details =
           std::string(
               "A job file has a table [job] whose keys are the options below without dashes, and "
               "command = [\"python\", \"train.py\"] (or one string for the shell). A table [env] "
               "may contain variables. A script may carry its options in lines such as `#BILLOW "
               "--gpus 1 "
               "--time 2h` before its first command. Options on the command line override the "
               "file.\n") +
           environment_details,
       .options = {job_options(), batch_options(), submit_options},
       .operands = Operands::command_or_file,
       .completes = Completes::file,
       .group = "jobs"});
}

}  // namespace billow::client
