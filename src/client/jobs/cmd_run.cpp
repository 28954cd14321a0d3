// Commands that begin or join work: run, submit, shell, attach.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "base/crypto.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/text.h"
#include "client/frame/commands.h"
#include "client/frame/console.h"
#include "client/frame/settings.h"
#include "client/frame/table.h"
#include "client/frame/terminal.h"
#include "client/frame/values.h"
#include "client/jobs/attachment.h"
#include "client/jobs/rank_output.h"
#include "client/jobs/renting.h"
#include "client/request/environments.h"
#include "client/request/job_names.h"
#include "client/request/job_request.h"
#include "client/request/job_script.h"
#include "client/request/sync.h"
#include "core/wire/codec.h"
#include "core/wire/log_record.h"

namespace billow::client {
namespace {

constexpr OptionSpec session_options[] = {
    {"tty", 't', nullptr, "give the job a terminal; detach with Ctrl-P Ctrl-Q"},
    {"no-stdin", 0, nullptr, "do not forward stdin"},
    {"quiet", 'q', nullptr, "print no messages from Billow"},
    {"yes", 'y', nullptr, "rent machines without asking on the terminal"},
};
constexpr OptionSpec shell_session_options[] = {
    {"quiet", 'q', nullptr, "print no messages from Billow"},
    {"yes", 'y', nullptr, "rent machines without asking on the terminal"},
};
constexpr OptionSpec submit_options[] = {
    {"yes", 'y', nullptr, "rent machines without asking on the terminal"},
    {"quiet", 'q', nullptr, "print only the job number"},
    {"lines", 0, "FILE",
     "submit one job per line of this file (- for stdin), each a shell command; the jobs share a "
     "label, lines=…",
     false, Completes::file},
};
constexpr std::size_t lines_bytes_max = 16 << 20;
constexpr OptionSpec attach_options[] = {
    {"tty", 't', nullptr, "the job has a terminal (usually detected)"},
    {"tail", 0, "SIZE", "start with this much of the earlier output (default 64K)"},
    {"watch", 'w', nullptr, "only watch: send no input or signals; Ctrl-C detaches"},
    {"signals", 0, nullptr, "send Ctrl-C to the job instead of detaching"},
    {"no-stdin", 0, nullptr, "do not forward stdin"},
    {"quiet", 'q', nullptr, "print no messages from Billow"},
};

constexpr const char* env_details =
    "If the head is on another machine (or with --sync), the working directory is copied to the "
    "job, except files excluded by .gitignore and .billowignore. The environment is copied too, "
    "except variables that look like credentials (…TOKEN, …SECRET…, …PASSWORD…, …_KEY, AWS_… and "
    "the like); pass one of those with --env-var NAME.";

Status resolve_reservation(Client& client, JobRequest& request) {
  if (request.reservation.empty())
    return {};
  if (const auto number = parse_int(request.reservation, 1, INT64_MAX)) {
    request.spec.reservation = ReservationId(static_cast<std::uint64_t>(*number));
    return {};
  }
  const Json answer = BILLOW_TRY(client.get("/v1/reservations"));
  for (const Json& r : answer["reservations"].items())
    if (r["name"].str_or("") == request.reservation &&
        (request.project.empty() || r["project"].str_or("") == request.project)) {
      if (request.spec.reservation)
        return fail(Code::conflict,
                    fmt::format("several projects have a reservation \"{}\"", request.reservation),
                    "use its number (see `billow reserve list`), or add --project");
      request.spec.reservation = ReservationId(r["id"].uint_or(0));
    }
  if (!request.spec.reservation)
    return fail(Code::not_found, fmt::format("there is no reservation \"{}\"", request.reservation),
                "see `billow reserve list`");
  return {};
}

// Array elements in --after are numbers of their own, and a name may be that of several jobs; the
// head knows them.
Status resolve_after(Client& client, JobRequest& request) {
  for (const AfterText& after : request.after) {
    const auto jobs = all_jobs_of(client, after.job);
    if (!jobs)
      return pass(Error(jobs.error()), "--after " + after.job);
    if (jobs->size() > 1)
      say(fmt::format("the job waits for {} jobs named {}", jobs->size(), after.job));
    for (const std::string& label : *jobs) {
      std::uint64_t number = static_cast<std::uint64_t>(parse_int(label, 1, INT64_MAX).value_or(0));
      if (number == 0) {
        auto job = client.get(path_of_job(label));
        if (!job)
          return pass(std::move(job.error()), "--after " + label);
        number = (*job)["id"].uint_or(0);
      }
      request.spec.after.push_back({JobId(number), after.kind});
    }
  }
  if (request.spec.after.size() > limits::dependencies_max)
    return fail(Code::invalid,
                fmt::format("--after names {} jobs; the limit is {}", request.spec.after.size(),
                            limits::dependencies_max),
                "submit them as one array (--array) and wait for that");
  return {};
}

// The request went out and no answer came; where nobody was there to take it, waiting does not
// help.
bool answer_was_lost(const Error& error) {
  return error.code == Code::unavailable && !error.message.starts_with("no head") &&
         !error.message.starts_with("cannot connect");
}

// The variables the job gets. Those that stay behind are named once, because the job fails later
// and elsewhere without them.
Result<Environment> variables_for(const Parsed& parsed, JobRequest& request) {
  request.env.always = BILLOW_TRY(read_settings()).pass_env;
  const std::vector<std::string> own = own_environment();
  Environment env = BILLOW_TRY(job_environment(own, request.env));
  BILLOW_TRY_VOID(write_roles(request, own, env));
  const std::vector<std::string> missing = held_back(own, env, request.env);
  constexpr std::size_t named_max = 6;
  if (missing.empty() || parsed.has("quiet") || parsed.has("json"))
    return env;
  std::vector<std::string> named(
      missing.begin(),
      missing.begin() + static_cast<std::ptrdiff_t>(std::min(missing.size(), named_max)));
  if (missing.size() > named_max)
    named.push_back(fmt::format("{} more", missing.size() - named_max));
  say(
      fmt::format("not passed to the job, because they look like credentials: {} (pass one with "
                  "--env-var {}, or always with `billow config set pass-env {}`)",
                  join(named, ", "), missing.front(), missing.front()));
  return env;
}

// Everything the head must know and have before it can be asked for the job; the variables it gets.
Result<Environment> prepare(const Parsed& parsed, Client& client, JobRequest& request) {
  BILLOW_TRY_VOID(resolve_after(client, request));
  BILLOW_TRY_VOID(resolve_reservation(client, request));
  BILLOW_TRY_VOID(prepare_environment(client, request));
  Environment env = BILLOW_TRY(variables_for(parsed, request));
  BILLOW_TRY_VOID(sync_for_job(client, request, parsed.has("quiet"), env));
  return env;
}

Result<Json> ask_for_job(const Parsed& parsed,
                         Client& client,
                         const JobRequest& request,
                         const Environment& env) {
  // A key of our own makes asking again safe when the answer was lost on the way.
  const std::string key =
      request.idempotency_key.empty() ? "cli-" + random_token(12) : request.idempotency_key;
  const std::string body = submit_body(request, env);
  auto job = client.post("/v1/jobs", body, {{"Idempotency-Key", key}});
  for (int again = 0; !job && answer_was_lost(job.error()) && again < 3; ++again) {
    ::usleep(200'000);
    (void)client.find_again();
    job = client.post("/v1/jobs", body, {{"Idempotency-Key", key}});
  }
  if (job && !parsed.has("quiet"))
    if (const Json& rents = (*job)["rents"]; !rents.is_null())
      say(rent_line(rents));
  // What will slow it down, said before it runs.
  if (job && !parsed.has("quiet"))
    for (const Json& warning : (*job)["warnings"].items())
      say("warning: " + printable(warning.str_or("")));
  return job;
}

// Whether what this program shows on stdout and stderr goes to one place: a terminal, a file.
bool outputs_are_one() {
  struct stat out {
  }, err{};
  return ::fstat(STDOUT_FILENO, &out) == 0 && ::fstat(STDERR_FILENO, &err) == 0 &&
         out.st_dev == err.st_dev && out.st_ino == err.st_ino;
}

// With `one_stream` the job's stdout and stderr come in the order written, and cannot be told
// apart.
Result<Json> submit(const Parsed& parsed, Client& client, JobRequest& request, bool one_stream) {
  Environment env = BILLOW_TRY(prepare(parsed, client, request));
  if (one_stream)
    env[wire::output_variable] = wire::output_merged;
  else
    env.erase(wire::output_variable);  // of a job that submits another
  BILLOW_TRY_VOID(may_rent(parsed, client, submit_body(request, env)));
  return ask_for_job(parsed, client, request, env);
}

// Of a gang: which node's process it was that failed, and why. Empty where that is not known.
std::string failed_rank(const Json& job) {
  if (job["state"].str_or("") != "failed" && job["state"].str_or("") != "lost")
    return {};
  const auto text = job.at("exit", "text").str_or("failed");
  const Json* worst = nullptr;
  for (const Json& task : job["tasks"].items())
    if (task.at("exit", "text").str_or("") == text && !worst)
      worst = &task;
  if (!worst || job["tasks"].items().size() < 2)
    return {};
  const std::string who = (*worst)["role"].is_string()
                              ? std::string((*worst)["role"].str_or(""))
                              : fmt::format("rank {}", (*worst)["rank"].int_or(0));
  return fmt::format("{} on {}: {}", who, printable((*worst)["node"].str_or("?")), printable(text));
}

int finish_session(const Result<AttachEnd>& end, const AttachOptions& options) {
  if (!end)
    return report(end.error());
  const Look look = look_at(STDERR_FILENO);
  if (options.json && !end->job.is_null())
    (void)write_all(STDERR_FILENO, end->job.dump() + "\n");
  else if (options.quiet || end->detached || end->reported || end->job.is_null())
    return end->exit_code;
  else if (const std::string rank = failed_rank(end->job); !rank.empty())
    say(fmt::format("job {}: {}", end->job["label"].str_or("?"), rank));
  else if (look.terminal)
    (void)write_all(STDERR_FILENO, painted(summary_of(end->job, now()), Colour::dim, look) + "\n");
  else if (end->exit_code != 0 && end->job.at("exit", "kind").str_or("exited") != "exited")
    // A script's log should say why, when it was not the command's own doing.
    say(fmt::format("job {}: {}", end->job["label"].str_or("?"),
                    end->job.at("exit", "text").str_or("failed")));
  return end->exit_code;
}

// A session shows the first node of a gang; the others write beside it.
int watch_session(const Parsed& parsed,
                  Client& client,
                  const AttachOptions& options,
                  std::uint64_t nodes) {
  if (nodes <= 1 || options.tty || options.json)
    return finish_session(attach_to_job(client, options), options);
  auto ranks = std::make_unique<RankOutput>(connect_options(parsed), options.job, nodes);
  const auto end = attach_to_job(client, options);
  // What was left running (Ctrl-\\) goes on without us; its readers end with this program.
  const auto job = client.get(path_of_job(options.job));
  if (!job || !(*job)["final"].bool_or(false))
    (void)ranks.release();
  ranks.reset();
  return finish_session(end, options);
}

int run_with(const Parsed& parsed, JobRequest request, bool tty) {
  const bool terminal_in = ::isatty(STDIN_FILENO) == 1;
  if (tty && !request.roles.empty())
    return report_usage({Code::invalid, "the roles of a group cannot share a terminal",
                         "drop -t; `billow ssh JOB --rank N` opens a shell in one of them"});
  request.spec.pty = tty;
  request.spec.use_stdin = !parsed.has("no-stdin") && (tty || (!terminal_in && has_input()));
  if (!request.roles.empty())
    request.spec.use_stdin = false;
  if (tty) {
    const auto size = terminal_size(STDIN_FILENO).value_or(TerminalSize{});
    request.spec.rows = size.rows;
    request.spec.cols = size.cols;
    if (const char* term = std::getenv("TERM"); term && request.env.none)
      request.env.named.push_back(std::string("TERM=") + term);
  }
  if (auto done = complete(request); !done)
    return report_usage(done.error());
  auto client = connect_for_job(parsed, wants_gpus(request));
  if (!client)
    return report(client.error());
  auto job = submit(parsed, *client, request, !tty && outputs_are_one());
  if (!job)
    return report(job.error());
  AttachOptions options{.job = fmt::format("{}", (*job)["id"].uint_or(0)),
                        .tty = tty,
                        .forward_input = request.spec.use_stdin,
                        .quiet = parsed.has("quiet"),
                        .json = parsed.has("json")};
  const int code = watch_session(parsed, *client, options, request.spec.nodes);
  if (!options.quiet && !options.json)
    say_results(request, options.job);
  return code;
}

// A job file or a script with options where the operands name one, else the command.
Result<JobRequest> request_of(const Parsed& parsed) {
  JobRequest request;
  request.spec.argv = parsed.operands;
  const bool one = !parsed.after_dashes && parsed.operands.size() == 1;
  const bool file = one && parsed.operands[0].ends_with(".toml");
  if (one && (parsed.operands[0].ends_with(".yaml") || parsed.operands[0].ends_with(".yml")))
    return fail(Code::invalid, fmt::format("{} is YAML; job files are TOML", parsed.operands[0]),
                "write [job] and command = [\"python\", \"train.py\"] into a file job.toml");
  if (file)
    request = BILLOW_TRY(read_job_file(parsed.operands[0]));
  else if (auto script = BILLOW_TRY(
               read_job_script(parsed.operands, parsed.has("quiet"), parsed.after_dashes)))
    request = std::move(*script);
  BILLOW_TRY_VOID(set_options(request, parsed));
  if (request.spec.argv.empty())
    return fail(Code::invalid,
                file ? parsed.operands[0] + " contains no command" : "no command or job file given",
                file ? "add a line such as command = [\"python\", \"train.py\"] under [job]"
                     : "write the command after --, for example: billow run --gpus 1 -- python "
                       "train.py");
  if (request.spec.argv == parsed.operands)
    BILLOW_TRY_VOID(check_program(request, parsed.has("quiet"), parsed.after_dashes));
  return request;
}

int cmd_run(const Parsed& parsed) {
  auto request = request_of(parsed);
  if (!request)
    return report_usage(request.error());
  if (request->spec.array || !request->cron.empty())
    return report_usage({Code::invalid, "run shows one job; this file asks for many",
                         "use `billow submit` for arrays and schedules"});
  return run_with(parsed, std::move(*request), parsed.has("tty"));
}

int cmd_shell(const Parsed& parsed) {
  // Nobody could end such a shell, and it would hold its GPUs.
  if (::isatty(STDIN_FILENO) != 1)
    return report_usage({Code::invalid, "shell needs a terminal, and the input is not one",
                         "to run a command, use: billow run -- COMMAND"});
  JobRequest request;
  const char* shell = std::getenv("SHELL");
  request.spec.argv = parsed.operands;
  if (request.spec.argv.empty())
    request.spec.argv = {shell && *shell ? shell : "/bin/sh"};  // a login shell would reset PATH
  request.spec.name = "shell";
  if (auto set = set_options(request, parsed); !set)
    return report_usage(set.error());
  return run_with(parsed, std::move(request), true);
}

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
  const auto env = prepare(parsed, *client, request);
  if (!env)
    return report(env.error());
  std::uint64_t first = 0, last = 0;
  for (std::size_t i = 0; i < commands.size(); ++i) {
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
  auto client = connect_for_job(parsed, wants_gpus(*request));
  if (!client)
    return report(client.error());
  auto job = submit(parsed, *client, *request, true);
  if (!job)
    return report(job.error());
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
  return 0;
}

int cmd_attach(const Parsed& parsed) {
  const auto word = one_operand(parsed, "attach", "job");
  if (!word)
    return report_usage(word.error());
  if (auto ok = check_job_word(*word); !ok)
    return report_usage(ok.error());
  std::uint64_t tail = 64 << 10;
  if (parsed.has("tail")) {
    const auto bytes = bytes_with_unit(parsed.get("tail"));
    if (!bytes)
      return report_usage(bytes.error());
    tail = *bytes;
  }
  auto client = connect(parsed);
  if (!client)
    return report(client.error());
  const auto operand = job_of(*client, *word, NameUse::look);
  if (!operand)
    return report(operand.error());
  auto job = client->get(path_of_job(*operand));
  if (!job)
    return report(job.error());
  const bool watch = parsed.has("watch"),
             tty = !watch && (parsed.has("tty") || (*job)["pty"].bool_or(false));
  AttachOptions options{
      .job = *operand,
      .tty = tty,
      .forward_input =
          !watch && !parsed.has("no-stdin") &&
          (tty || (*job)["use_stdin"].bool_or(::isatty(STDIN_FILENO) != 1 && has_input())),
      .quiet = parsed.has("quiet"),
      .json = parsed.has("json"),
      .tail = fmt::format("{}", tail)};
  options.watch = watch;
  options.interrupt_detaches = !parsed.has("signals");
  return watch_session(parsed, *client, options,
                       (*job)["members"].uint_or((*job)["nodes"].uint_or(1)));
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

void add_run_commands(CommandTable& table) {
  table.push_back(
      {.name = "run",
       .summary = "run a command, show its output and return its exit code",
       .example = "billow run --gpus 1 -- python train.py\nbillow run --gpus 0.25 --gpu-mem 20G "
                  "--time 2h -- ./serve.sh",
       .run = cmd_run,
       .usage = "[--] COMMAND [ARG…] | FILE.toml | SCRIPT [ARG…]",
       .details =
           std::string(
               "The output is shown live. stdin is forwarded if it is not a terminal, or with -t. "
               "Ctrl-C is sent to the job; a second Ctrl-C within two seconds kills it; Ctrl-C "
               "while the job is queued cancels it. Ctrl-\\ detaches and leaves the job running. "
               "If the head restarts, the job keeps running and this command reconnects.\n") +
           env_details,
       .options = {job_options(), session_options},
       .operands = Operands::command_or_file,
       .group = "jobs"});
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
           env_details,
       .options = {job_options(), batch_options(), submit_options},
       .operands = Operands::command_or_file,
       .completes = Completes::file,
       .group = "jobs"});
  table.push_back({.name = "shell",
                   .summary = "open a terminal on a node with the resources you ask for",
                   .example = "billow shell --gpus 1 --time 4h",
                   .run = cmd_shell,
                   .usage = "[[--] COMMAND [ARG…]]",
                   .details = "Detach with Ctrl-P Ctrl-Q; reattach with `billow attach`.",
                   .options = {job_options(), shell_session_options},
                   .operands = Operands::command,
                   .group = "jobs"});
  table.push_back(
      {.name = "attach",
       .summary = "attach to a running job: its output, input and terminal",
       .example = "billow attach 12",
       .run = cmd_attach,
       .usage = "JOB",
       .details =
           "Detach with Ctrl-P Ctrl-Q if the job has a terminal, with Ctrl-C "
           "otherwise; the job keeps running. Several clients can attach at once and share the "
           "terminal.\nOther members of the project can only watch.",
       .options = {attach_options},
       .operands = Operands::some,
       .completes = Completes::job,
       .group = "jobs"});
}

}  // namespace billow::client
