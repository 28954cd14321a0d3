// Put before the command of a job whose files follow it: brings them into the working directory as
// the job's own user, starts the command there, and when it has ended hands its declared outputs to
// this machine's agent.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/content/file_client.h"
#include "agent/content/file_service.h"
#include "base/file.h"
#include "base/text.h"
#include "client/frame/console.h"
#include "client/frame/server_commands.h"
#include "client/frame/table.h"
#include "core/model/surroundings.h"
#include "files/scan.h"
#include "s3/objects.h"

namespace billow::client {
namespace {

constexpr OptionSpec stage_options[] = {
    {"copy-in", 0, nullptr, "write what the agent sends into the working directory"},
    {"copy-out", 0, nullptr, "hand the agent what lies at a path in it"},
};
constexpr int staging_failed = 125;  // as container runtimes say that they, not the command, failed

volatile sig_atomic_t child = 0;
extern "C" void pass_signal(int number) {
  if (child > 0)
    ::kill(static_cast<pid_t>(child), number);
}

int start(const std::vector<std::string>& command) {
  std::vector<std::string> words = command;
  std::vector<char*> argv;
  for (std::string& word : words)
    argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  const int error = errno;
  say(fmt::format("{}: {}", command[0], ::strerror(error)));
  return error == ENOENT ? 127 : 126;
}

// What S3 tools read, as far as the job has it.
std::map<std::string, std::string> keys() {
  std::map<std::string, std::string> out;
  for (const char* name :
       {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION",
        "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"})
    if (const char* value = ::getenv(name); value && *value)
      out[name] = value;
  return out;
}

// A file as the object, or a directory's files as objects below it.
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

// For a copy into or out of a running job's directory: started there by the agent, as the job's
// user, with a socket as descriptor 3.
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

int cmd_stage(const Parsed& parsed) {
  if (parsed.has("copy-in") || parsed.has("copy-out"))
    return copy(parsed);
  if (parsed.operands.empty())
    return report_usage(
        {Code::invalid, "no command", "this is put before a job's command by Billow itself"});
  const auto variable = [](const char* name) {
    const char* text = ::getenv(name);
    return std::string(text ? text : "");
  };
  const std::string socket = variable(agent::files_socket_variable),
                    digest = variable(surroundings::files),
                    outputs = variable(surroundings::outputs);
  if (const Status done = agent::stage_files(socket, digest, "."); !done) {
    say(fmt::format("the job's files could not be brought: {}", done.error().message));
    return staging_failed;
  }
  const auto lines_of = [&](const char* name) {
    std::vector<std::pair<std::string, std::string>> out;  // URL and path
    for (const std::string& line : split(variable(name), '\n'))
      if (const auto tab = line.find('\t'); tab != std::string::npos)
        out.emplace_back(line.substr(0, tab), line.substr(tab + 1));
    return out;
  };
  for (const auto& [url, path] : lines_of(agent::inputs_variable)) {
    const auto brought = agent::bring_input(socket, url, path, keys());
    if (!brought) {
      say(fmt::format("the input {} could not be brought: {}", printable(url),
                      printable(brought.error().message)));
      return staging_failed;
    }
    say(fmt::format("{}: {} file{}, {}{}", printable(path), brought->files,
                    brought->files == 1 ? "" : "s", format_bytes(brought->bytes),
                    brought->fetched_bytes == 0 ? ", from this node's cache"
                    : brought->fetched_bytes < brought->bytes
                        ? fmt::format(", {} of it fetched", format_bytes(brought->fetched_bytes))
                        : ""));
  }
  const auto sent_after = lines_of(agent::object_outputs_variable);
  if (outputs.empty() && sent_after.empty())
    return start(parsed.operands);
  for (int s : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGQUIT}) {
    struct sigaction action {};
    action.sa_handler = pass_signal;
    action.sa_flags = SA_RESTART;
    ::sigaction(s, &action, nullptr);
  }
  const bool terminal = ::isatty(STDIN_FILENO) ==
                        1;  // whose signals reach the whole group: nothing is passed on then
  const pid_t pid = ::fork();
  if (pid < 0)
    return report(fail_errno("fork", errno).error());
  if (pid == 0) {
    for (int s : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGQUIT})
      ::signal(s, SIG_DFL);
    if (!terminal)
      ::setpgid(0, 0);  // a signal to the group reaches us, and the command by us, once
    ::_exit(start(parsed.operands));
  }
  if (!terminal)
    child = pid;
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
  child = 0;
  agent::NotLeft not_left;
  const Status left = outputs.empty()
                          ? Status{}
                          : agent::leave_outputs(socket, ".", split(outputs, '\n'), not_left);
  for (const auto& [url, path] : sent_after)
    if (const Status sent = send_objects(url, path); !sent)
      not_left.bad.push_back(fmt::format("{}: {}", path, sent.error().message));
  for (const std::string& path : not_left.absent)
    say(fmt::format("the job left no {}", printable(path)));
  for (const std::string& trouble : not_left.bad)
    say(fmt::format("an output could not be kept: {}", printable(trouble)));
  if (!left)
    say(fmt::format("the job's outputs could not be kept: {}", left.error().message));
  if (WIFSIGNALED(status)) {
    ::signal(WTERMSIG(status), SIG_DFL);
    ::raise(WTERMSIG(status));
    return 128 + WTERMSIG(status);
  }
  const int code = WEXITSTATUS(status);
  return code == 0 && (!left || !not_left.bad.empty()) ? staging_failed : code;
}

}  // namespace

void add_stage_commands(CommandTable& table) {
  table.push_back({.name = "stage",
                   .summary = "bring a job's files, then start its command (put before the command "
                              "of jobs whose directory follows them)",
                   .example = "billow stage -- python train.py",
                   .run = cmd_stage,
                   .usage = "[--] COMMAND [ARG…]",
                   .options = {stage_options},
                   .operands = Operands::command,
                   .group = "head",
                   .talks_to_head = false,
                   .prints_json = false});
}

}  // namespace billow::client
