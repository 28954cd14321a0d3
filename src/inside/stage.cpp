// In front of the command of a job whose files follow it to the node: fetches them into the working
// directory as the job's user, starts the command there, and when it has ended hands its declared
// outputs to this node's agent.
#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <linux/openat2.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/content/file_client.h"
#include "agent/content/file_service.h"
#include "base/file.h"
#include "base/text.h"
#include "client/frame/console.h"
#include "client/frame/server_commands.h"
#include "client/frame/table.h"
#include "container/plan.h"
#include "core/model/surroundings.h"
#include "core/wire/codec.h"
#include "files/scan.h"
#include "process/spawn.h"
#include "s3/objects.h"

namespace billow::client {
namespace {

constexpr OptionSpec stage_options[] = {
    {"copy-in", 0, nullptr, "write files from the agent into the working directory"},
    {"copy-out", 0, nullptr, "send a file or directory below it to the agent"},
};
constexpr int staging_failed = 125;  // like container runtimes: they failed, not the command

volatile sig_atomic_t child = 0;
extern "C" void pass_signal(int number) {
  if (child > 0)
    ::kill(static_cast<pid_t>(child), number);
}

int could_not_start(const Error& error, const std::string& program) {
  say(error.message);
  char target[PATH_MAX];
  const ssize_t n = ::readlink(program.c_str(), target, sizeof target);
  if (n > 0 && !file_exists(program))
    say(
        fmt::format("{} is a link to {}, which this node does not have; `billow env create` makes "
                    "an environment with its own Python",
                    program, std::string_view(target, static_cast<std::size_t>(n))));
  return error.code == Code::not_found ? 127 : 126;
}

// The variables that S3 tools read, as far as the job has them.
std::map<std::string, std::string> keys() {
  std::map<std::string, std::string> out;
  for (const char* name :
       {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION",
        "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"})
    if (const char* value = ::getenv(name); value && *value)
      out[name] = value;
  return out;
}

// Sends a file as an object, or the files of a directory as objects below it.
Status send_objects(const std::string& url, const std::string& path) {
  const s3::Place place = BILLOW_TRY(s3::parse_place(url));
  const auto have = keys();
  const s3::Objects objects(s3::access_of([&](const char* name) {
    const auto found = have.find(name);
    return found == have.end() ? std::string() : found->second;
  }));
  const auto found = BILLOW_TRY(files::list(".", path));
  const bool single = found.size() == 1 && found.front() == path;
  BILLOW_TRY_VOID(s3::in_parallel(found.size(), s3::connections, [&](std::size_t i) -> Status {
    const std::string below =
        single ? path.substr(path.rfind('/') + 1) : found[i].substr(path.size() + 1);
    const std::string key = single && !place.key.empty() && !place.key.ends_with('/') ? place.key
                            : place.key.empty() || place.key.ends_with('/')
                                ? place.key + below
                                : place.key + "/" + below;
    const Fd fd(::open(found[i].c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    struct stat info {};
    if (!fd || ::fstat(fd.get(), &info) != 0)
      return fail_errno(found[i], errno);
    return objects.write(place, key, fd.get(), static_cast<std::uint64_t>(info.st_size));
  }));
  say(fmt::format("{}: {} file{} sent to {}", printable(path), found.size(),
                  found.size() == 1 ? "" : "s", printable(url)));
  return {};
}

// A copy into or out of a running job's directory. The agent starts this there, as the job's user,
// with a socket as descriptor 3.
int copy(const Parsed& parsed) {
  constexpr int peer = 3;
  const Status done =
      parsed.has("copy-in")
          ? agent::take_tree(peer, ".")
          : agent::give_tree(peer, ".", parsed.operands.empty() ? "" : parsed.operands[0]);
  if (done)
    return 0;
  say(done.error().message);
  return 1;
}

std::string variable(const char* name) {
  const char* text = ::getenv(name);
  return text ? text : "";
}

using UrlPaths = std::vector<std::pair<std::string, std::string>>;

// Lines of "URL<tab>path" in a variable.
UrlPaths url_paths(const char* name) {
  UrlPaths out;
  for (const std::string& line : split(variable(name), '\n'))
    if (const auto tab = line.find('\t'); tab != std::string::npos)
      out.emplace_back(line.substr(0, tab), line.substr(tab + 1));
  return out;
}

Status bring_inputs(const std::string& socket) {
  for (const auto& [url, path] : url_paths(agent::inputs_variable)) {
    const auto brought = agent::bring_input(socket, url, path, keys());
    if (!brought)
      return fail(brought.error().code,
                  fmt::format("the input {} could not be fetched: {}", printable(url),
                              printable(brought.error().message)));
    say(fmt::format("{}: {} file{}, {}{}", printable(path), brought->files,
                    brought->files == 1 ? "" : "s", format_bytes(brought->bytes),
                    brought->fetched_bytes == 0 ? ", from this node's cache"
                    : brought->fetched_bytes < brought->bytes
                        ? fmt::format(", {} of it fetched", format_bytes(brought->fetched_bytes))
                        : ""));
  }
  return {};
}

// Runs the command and passes signals on to it.
Result<process::Ended> run_to_end(const std::vector<std::string>& command) {
  for (int s : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGQUIT}) {
    struct sigaction action {};
    action.sa_handler = pass_signal;
    action.sa_flags = SA_RESTART;
    ::sigaction(s, &action, nullptr);
  }
  // Signals of a terminal reach the whole group, and are not passed on. Otherwise the command has
  // its own group, so that a signal to ours reaches it once, through us.
  const bool terminal = ::isatty(STDIN_FILENO) == 1;
  process::Spawn request;
  request.argv = command;
  request.in = request.out = request.err = process::inherited;
  request.group = terminal ? process::Group::ours : process::Group::own;
  process::Child started = BILLOW_TRY(process::spawn(request));
  if (!terminal)
    child = started.pid();
  const process::Ended ended = started.wait();
  child = 0;
  return ended;
}

// Whether no link leads from the path out of the job's directory.
bool stays_inside(const std::string& path) {
  open_how how{};
  how.flags = O_PATH | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  const Fd fd(static_cast<int>(::syscall(SYS_openat2, AT_FDCWD, path.c_str(), &how, sizeof how)));
  return fd || errno == ENOENT;
}

// This program is outside the container of a confined job, so links that the job made must not lead
// it to files that the job cannot see. The job has ended and changes nothing any more.
std::vector<std::string> without_escapes(std::vector<std::string> paths, agent::NotLeft& not_left) {
  const auto plan = wire::from_json_text<container::Plan>(variable(container::plan_variable));
  if (plan && plan->confined)
    std::erase_if(paths, [&](const std::string& path) {
      if (stays_inside(path))
        return false;
      not_left.bad.push_back(fmt::format("{}: a link leads out of the job's directory", path));
      return true;
    });
  return paths;
}

// Hands the outputs to the agent and the object stores. False: some could not be kept.
bool keep_outputs(const std::string& socket, const std::string& outputs, const UrlPaths& objects) {
  agent::NotLeft not_left;
  const std::vector<std::string> kept = without_escapes(split(outputs, '\n'), not_left);
  const Status left =
      outputs.empty() ? Status{} : agent::leave_outputs(socket, ".", kept, not_left);
  for (const auto& [url, path] : objects)
    if (const Status sent =
            without_escapes({path}, not_left).empty() ? Status{} : send_objects(url, path);
        !sent)
      not_left.bad.push_back(fmt::format("{}: {}", path, sent.error().message));
  for (const std::string& path : not_left.absent)
    say(fmt::format("the job did not create its output {}", printable(path)));
  for (const std::string& trouble : not_left.bad)
    say(fmt::format("an output could not be kept: {}", printable(trouble)));
  if (!left)
    say(fmt::format("the job's outputs could not be kept: {}", left.error().message));
  return left && not_left.bad.empty();
}

int cmd_stage(const Parsed& parsed) {
  if (parsed.has("copy-in") || parsed.has("copy-out"))
    return copy(parsed);
  if (parsed.operands.empty())
    return report_usage(
        {Code::invalid, "no command", "Billow itself puts this in front of a job's command"});
  const std::string socket = variable(agent::files_socket_variable),
                    outputs = variable(surroundings::outputs);
  if (const Status done = agent::stage_files(socket, variable(surroundings::files), "."); !done) {
    say(fmt::format("the job's files could not be fetched: {}", done.error().message));
    return staging_failed;
  }
  if (const Status done = bring_inputs(socket); !done) {
    say(done.error().message);
    return staging_failed;
  }
  const UrlPaths objects = url_paths(agent::object_outputs_variable);
  if (outputs.empty() && objects.empty())
    return could_not_start(process::replace_this_program({.argv = parsed.operands}).error(),
                           parsed.operands.front());
  const auto ended = run_to_end(parsed.operands);
  const bool kept = keep_outputs(socket, outputs, objects);
  if (!ended)
    return could_not_start(ended.error(), parsed.operands.front());
  if (const int number = ended->signal()) {
    ::signal(number, SIG_DFL);
    ::raise(number);
  }
  return ended->code() == 0 && !kept ? staging_failed : ended->code();
}

}  // namespace

void add_stage_commands(CommandTable& table) {
  table.push_back({.name = "stage",
                   .summary = "fetch a job's files, then start its command (Billow puts it in "
                              "front of the command of jobs whose working directory is copied)",
                   .example = "billow stage -- python train.py",
                   .run = cmd_stage,
                   .usage = "[--] COMMAND [ARG…]",
                   .options = {stage_options},
                   .operands = Operands::command,
                   .group = internal_group,
                   .talks_to_head = false,
                   .prints_json = false});
}

}  // namespace billow::client
