#include "pool/run_command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"

extern char** environ;

namespace billow::pool {
namespace {

struct Pipe {
  Fd read, write;
  static Result<Pipe> create() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return fail_errno("pipe", errno);
    return Pipe{Fd(ends[0]), Fd(ends[1])};
  }
};

// True while more may come.
bool take(Fd& from, std::string& into) {
  char buffer[65536];
  const ssize_t got = ::read(from.get(), buffer, sizeof buffer);
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return true;
  if (got <= 0) return from.reset(), false;
  const std::size_t room = limits::pool_command_output_bytes_max - std::min(limits::pool_command_output_bytes_max, into.size());
  into.append(buffer, std::min(room, static_cast<std::size_t>(got)));
  return true;
}

std::vector<std::string> environment(const std::map<std::string, std::string>& more) {
  std::vector<std::string> out;
  for (char** at = environ; *at; ++at) {
    const std::string_view entry = *at;
    if (!more.contains(std::string(entry.substr(0, entry.find('='))))) out.emplace_back(entry);
  }
  for (const auto& [name, value] : more) out.push_back(name + "=" + value);
  return out;
}

}  // namespace

std::string CommandResult::complaint() const {
  std::string last;
  for (const std::string& text : {out, err})
    for (const std::string& line : split(text, '\n'))
      if (!trim(line).empty()) last = trim(line);
  if (last.size() > 300) last = last.substr(0, 300) + "…";
  return last.empty() ? fmt::format("it ended with code {} and said nothing", code) : last;
}

Result<CommandResult> run_command(const CommandSpec& spec) {
  Pipe in = BILLOW_TRY(Pipe::create()), out = BILLOW_TRY(Pipe::create()), err = BILLOW_TRY(Pipe::create());
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, in.read.get(), 0);
  ::posix_spawn_file_actions_adddup2(&actions, out.write.get(), 1);
  ::posix_spawn_file_actions_adddup2(&actions, err.write.get(), 2);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t none;
  ::sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes, &none);  // the head blocks its signals; a program must not inherit that
  sigset_t standard;
  ::sigemptyset(&standard);
  ::sigaddset(&standard, SIGPIPE);
  ::posix_spawnattr_setsigdefault(&attributes, &standard);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::vector<std::string> words = spec.argv, variables = environment(spec.env);
  std::vector<char*> argv, envp;
  for (std::string& w : words) argv.push_back(w.data());
  for (std::string& v : variables) envp.push_back(v.data());
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  pid_t pid = 0;
  const int rc = ::posix_spawnp(&pid, argv[0], &actions, &attributes, argv.data(), envp.data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  if (rc != 0) return fail_errno(spec.argv.front(), rc);
  in.read.reset();
  out.write.reset();
  err.write.reset();
  ::fcntl(in.write.get(), F_SETFL, O_NONBLOCK);

  CommandResult result;
  std::size_t written = 0;
  if (spec.input.empty()) in.write.reset();
  const SteadyTime deadline = system_clock().steady() + spec.timeout;
  bool late = false;
  while (out.read || err.read) {
    const Duration left = deadline - system_clock().steady();
    if (left.ns <= 0) {
      late = true;
      ::kill(-pid, SIGKILL);
      break;
    }
    pollfd fds[3] = {{out.read.get(), POLLIN, 0}, {err.read.get(), POLLIN, 0}, {in.write.get(), POLLOUT, 0}};
    ::poll(fds, 3, static_cast<int>(std::min<std::int64_t>(left.ms() + 1, 1000)));
    if (out.read && (fds[0].revents & (POLLIN | POLLHUP | POLLERR))) take(out.read, result.out);
    if (err.read && (fds[1].revents & (POLLIN | POLLHUP | POLLERR))) take(err.read, result.err);
    if (in.write && (fds[2].revents & (POLLOUT | POLLERR))) {
      const ssize_t sent = ::write(in.write.get(), spec.input.data() + written, spec.input.size() - written);
      if (sent > 0) written += static_cast<std::size_t>(sent);
      if (written == spec.input.size() || (sent < 0 && errno != EAGAIN && errno != EINTR)) in.write.reset();
    }
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
  if (late) return fail(Code::timed_out, fmt::format("{} took longer than {}", spec.argv.front(), format_duration(spec.timeout)));
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace billow::pool
