#include "base/run_command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "base/file.h"
#include "base/platform.h"
#include "base/text.h"

extern char** environ;

namespace billow {
namespace {

struct Pipe {
  Fd read, write;
  static Result<Pipe> create() {
    int ends[2];
    if (platform::make_pipe(ends) != 0)
      return fail_errno("pipe", errno);
    return Pipe{Fd(ends[0]), Fd(ends[1])};
  }
};

// True while more may come.
bool take(Fd& from, std::string& into) {
  char buffer[65536];
  const ssize_t got = ::read(from.get(), buffer, sizeof buffer);
  if (got < 0 && (errno == EINTR || errno == EAGAIN))
    return true;
  if (got <= 0)
    return from.reset(), false;
  const std::size_t room = limits::pool_command_output_bytes_max -
                           std::min(limits::pool_command_output_bytes_max, into.size());
  into.append(buffer, std::min(room, static_cast<std::size_t>(got)));
  return true;
}

std::vector<std::string> environment(const std::map<std::string, std::string>& more) {
  std::vector<std::string> out;
  for (char** at = environ; *at; ++at) {
    const std::string_view entry = *at;
    if (!more.contains(std::string(entry.substr(0, entry.find('=')))))
      out.emplace_back(entry);
  }
  for (const auto& [name, value] : more)
    out.push_back(name + "=" + value);
  return out;
}

// `apart`: how it is set apart from us (a process group, or a session of its own).
Result<pid_t> spawn(std::vector<std::string> words,
                    std::vector<std::string> variables,
                    const std::array<int, 3>& streams,
                    int apart) {
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  for (int i = 0; i < 3; ++i)
    ::posix_spawn_file_actions_adddup2(&actions, streams[static_cast<std::size_t>(i)], i);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  ::posix_spawnattr_setsigmask(
      &attributes, &none);  // the head blocks its signals; a program must not inherit that
  sigset_t standard;
  sigemptyset(&standard);
  sigaddset(&standard, SIGPIPE);
  ::posix_spawnattr_setsigdefault(&attributes, &standard);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  ::posix_spawnattr_setflags(
      &attributes, static_cast<short>(apart | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF));
  std::vector<char*> argv, envp;
  for (std::string& w : words)
    argv.push_back(w.data());
  for (std::string& v : variables)
    envp.push_back(v.data());
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  pid_t pid = 0;
  const int rc = ::posix_spawnp(&pid, argv[0], &actions, &attributes, argv.data(), envp.data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  if (rc != 0)
    return fail_errno(words.front(), rc);
  return pid;
}

int code_of(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

std::string CommandResult::complaint() const {
  std::string last;
  for (const std::string& text : {out, err})
    for (const std::string& line : split(text, '\n'))
      if (!trim(line).empty() && (last.empty() || !trim(line).starts_with("hint: ")))
        last = trim(line);  // our own programs' last line may be advice
  if (last.starts_with("billow: "))
    last.erase(0, 8);  // whoever reads it knows who speaks
  if (last.size() > 300)
    last = std::string(utf8_prefix(last, 300)) + "…";
  return last.empty() ? fmt::format("it ended with code {} and said nothing", code) : last;
}

Result<CommandResult> run_command(const CommandSpec& spec) {
  Pipe in = BILLOW_TRY(Pipe::create()), out = BILLOW_TRY(Pipe::create()),
       err = BILLOW_TRY(Pipe::create());
  const pid_t pid =
      BILLOW_TRY(spawn(spec.argv, environment(spec.env),
                       {in.read.get(), out.write.get(), err.write.get()}, POSIX_SPAWN_SETPGROUP));
  in.read.reset();
  out.write.reset();
  err.write.reset();
  ::fcntl(in.write.get(), F_SETFL, O_NONBLOCK);

  CommandResult result;
  std::size_t written = 0;
  if (spec.input.empty())
    in.write.reset();
  const SteadyTime deadline = system_clock().steady() + spec.timeout;
  bool late = false;
  while (out.read || err.read) {
    const Duration left = deadline - system_clock().steady();
    if (left.ns <= 0) {
      late = true;
      ::kill(-pid, SIGKILL);
      break;
    }
    pollfd fds[3] = {
        {out.read.get(), POLLIN, 0}, {err.read.get(), POLLIN, 0}, {in.write.get(), POLLOUT, 0}};
    ::poll(fds, 3, static_cast<int>(std::min<std::int64_t>(left.ms() + 1, 1000)));
    if (out.read && (fds[0].revents & (POLLIN | POLLHUP | POLLERR)))
      take(out.read, result.out);
    if (err.read && (fds[1].revents & (POLLIN | POLLHUP | POLLERR)))
      take(err.read, result.err);
    if (in.write && (fds[2].revents & (POLLOUT | POLLERR))) {
      const ssize_t sent =
          ::write(in.write.get(), spec.input.data() + written, spec.input.size() - written);
      if (sent > 0)
        written += static_cast<std::size_t>(sent);
      if (written == spec.input.size() || (sent < 0 && errno != EAGAIN && errno != EINTR))
        in.write.reset();
    }
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
  if (late)
    return fail(Code::timed_out, fmt::format("{} took longer than {}", spec.argv.front(),
                                             format_duration(spec.timeout)));
  result.code = code_of(status);
  return result;
}

Result<StartedCommand> start_command(const StartSpec& spec) {
  constexpr Duration polite = seconds(2);
  Pipe in = BILLOW_TRY(Pipe::create()), out = BILLOW_TRY(Pipe::create());
  Fd complaints(::open(spec.complaints.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!complaints)
    return fail_errno(spec.complaints, errno);
  const pid_t pid =
      BILLOW_TRY(spawn(spec.argv, environment({}),
                       {in.read.get(), out.write.get(), complaints.get()}, POSIX_SPAWN_SETSID));
  in.read.reset();
  out.write.reset();
  (void)write_all(in.write.get(), spec.input);
  in.write.reset();
  StartedCommand started;
  SteadyTime deadline = system_clock().steady() + spec.patience;
  bool late = false;
  while (out.read && started.ended.out.find('\n') == std::string::npos) {
    const Duration left = deadline - system_clock().steady();
    if (left.ns <= 0) {
      ::kill(pid, late ? SIGKILL : SIGTERM);
      if (std::exchange(late, true))
        break;
      deadline = system_clock().steady() + polite;
      continue;
    }
    pollfd fd{out.read.get(), POLLIN, 0};
    if (::poll(&fd, 1, static_cast<int>(left.ms() + 1)) > 0)
      take(out.read, started.ended.out);
  }
  if (!late && out.read) {
    started.pid = pid;
    return started;
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
  if (late)
    return fail(Code::timed_out, fmt::format("{} said nothing for {}", spec.argv.front(),
                                             format_duration(spec.patience)));
  started.ended.code = code_of(status);
  if (auto text = read_file(spec.complaints, limits::pool_command_output_bytes_max))
    started.ended.err = std::move(*text);
  return started;
}

}  // namespace billow
