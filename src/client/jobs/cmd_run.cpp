// Commands that begin work and stay with it, or join it: run, shell, attach.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "base/file.h"
#include "base/text.h"
#include "client/frame/commands.h"
#include "client/frame/console.h"
#include "client/frame/table.h"
#include "client/frame/terminal.h"
#include "client/frame/values.h"
#include "client/jobs/attachment.h"
#include "client/jobs/rank_output.h"
#include "client/jobs/submission.h"
#include "client/request/job_list.h"
#include "client/request/job_names.h"
#include "client/request/job_request.h"

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
constexpr OptionSpec attach_options[] = {
    {"tty", 't', nullptr, "the job has a terminal (usually detected)"},
    {"tail", 0, "SIZE", "start with this much of the earlier output (default 64K)"},
    {"watch", 'w', nullptr, "only watch: send no input or signals; Ctrl-C detaches"},
    {"signals", 0, nullptr, "send Ctrl-C to the job instead of detaching"},
    {"no-stdin", 0, nullptr, "do not forward stdin"},
    {"quiet", 'q', nullptr, "print no messages from Billow"},
};

// Whether what this program shows on stdout and stderr goes to one place: a terminal, a file.
bool outputs_are_one() {
  struct stat out {
  }, err{};
  return ::fstat(STDOUT_FILENO, &out) == 0 && ::fstat(STDERR_FILENO, &err) == 0 &&
         out.st_dev == err.st_dev && out.st_ino == err.st_ino;
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
  return fmt::format("{} on {}: {}", member_text(job, *worst),
                     printable((*worst)["node"].str_or("?")), printable(text));
}

// What to do about a command that could not be started. A head on this machine copies nothing by
// default, and machines of its pools have other files.
void hint_at_start(const Json& job) {
  const auto text = job.at("exit", "text").str_or("");
  if (const auto program = text.substr(0, text.find(": ")); program.starts_with("exec ")) {
    if (text.ends_with(": Permission denied"))
      (void)write_all(STDERR_FILENO, fmt::format("hint: make it executable: chmod +x {}\n",
                                                 printable(program.substr(5))));
    else if (text.ends_with(": No such file or directory"))
      (void)write_all(
          STDERR_FILENO,
          "hint: the node has no such program in the job's PATH, or lacks the interpreter "
          "in its first line; check the name, or give its path on the node\n");
  }
  if (text.find("enter the working directory ") != std::string_view::npos &&
      text.ends_with("No such file or directory"))
    (void)write_all(STDERR_FILENO, "hint: the directory is not on the node; --sync copies it\n");
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
  if (!options.json)
    hint_at_start(end->job);
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
  std::optional<OnInterrupt> left(std::in_place, "nothing was submitted");
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
  left.reset();  // the session hears signals itself
  const int code = watch_session(parsed, *client, options, request.spec.nodes);
  if (!options.quiet && !options.json)
    say_results(request, options.job);
  return code;
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
           environment_details,
       .options = {job_options(), session_options},
       .operands = Operands::command_or_file,
       .group = "jobs"});
  add_submit_commands(table);
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
