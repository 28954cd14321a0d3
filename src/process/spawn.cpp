#include "process/spawn.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/platform.h"
#include "process/fork.h"
#include "process/signals.h"

extern char** environ;

namespace billow::process {
namespace {

constexpr Duration kill_patience = seconds(10);
constexpr int wait_ms_max = 20;

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> out;
  for (std::string& word : words)
    out.push_back(word.data());
  out.push_back(nullptr);
  return out;
}

// dup2 in the child must not overwrite a descriptor that is still to be duplicated: all sources are
// copied above the highest target first.
struct Streams {
  std::vector<Fd> copies;
  std::vector<GivenFd> fds;
  int first_free_fd = 3;

  Status add(int fd, int as) {
    if (fd == inherited)
      return {};
    Fd copy;
    if (fd == null_device) {
      const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
      copy = Fd(::fcntl(null.get(), F_DUPFD_CLOEXEC, first_free_fd));
    } else {
      copy = Fd(::fcntl(fd, F_DUPFD_CLOEXEC, first_free_fd));
    }
    if (!copy)
      return fail_errno("duplicate a descriptor", errno);
    fds.push_back({copy.get(), as});
    copies.push_back(std::move(copy));
    return {};
  }
};

Result<Streams> prepare_streams(const Spawn& request) {
  Streams out;
  for (const GivenFd& given : request.fds)
    out.first_free_fd = std::max(out.first_free_fd, given.as + 1);
  const bool terminal = request.terminal >= 0;
  BILLOW_TRY_VOID(out.add(terminal ? request.terminal : request.in, 0));
  BILLOW_TRY_VOID(out.add(terminal ? request.terminal : request.out, 1));
  BILLOW_TRY_VOID(out.add(terminal ? request.terminal : request.err, 2));
  for (const GivenFd& given : request.fds)
    BILLOW_TRY_VOID(out.add(given.fd, given.as));
  return out;
}

// posix_spawn is cheaper than fork for a program with much memory, and exists on every system.
bool needs_fork(const Spawn& r) {
  return r.body || !r.cwd.empty() || r.identity || !r.cgroups.empty() || r.namespaces.pid > 0 ||
         r.terminal >= 0 || r.signals != Signals::reset || r.on_parent_death != 0 ||
         r.no_new_privs || r.refused_calls != 0 || r.whole_tree || r.detached || r.open_files != 0;
}

Result<int> posix_spawn_child(const Prepared& prepared) {
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  for (const GivenFd& given : prepared.fds)
    ::posix_spawn_file_actions_adddup2(&actions, given.fd, given.as);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  short flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF;
  if (prepared.request.group == Group::own) {
    ::posix_spawnattr_setpgroup(&attributes, 0);
    flags |= POSIX_SPAWN_SETPGROUP;
  }
  if (prepared.request.group == Group::session)
    flags |= POSIX_SPAWN_SETSID;
  close_in_child(prepared, actions, flags);
  ::posix_spawnattr_setflags(&attributes, flags);
  pid_t pid = 0;
  const int error = ::posix_spawnp(&pid, prepared.program(), &actions, &attributes,
                                   prepared.argv.data(), prepared.env.data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  if (error != 0)
    return fail_errno(prepared.program(), error);
  return pid;
}

}  // namespace

bool Ended::ok() const {
  return !late && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}
int Ended::code() const {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
int Ended::signal() const {
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

Child::Child(Child&& other) noexcept {
  *this = std::move(other);
}

Child& Child::operator=(Child&& other) noexcept {
  if (this == &other)
    return *this;
  (void)end_and_wait();
  pid_ = std::exchange(other.pid_, 0);
  leads_group_ = other.leads_group_;
  whole_tree_ = other.whole_tree_;
  deadline_ = other.deadline_;
  return *this;
}

Child::~Child() {
  (void)end_and_wait();
}

Ended Child::end_and_wait() {
  if (pid_ <= 0)
    return {};
  deadline_ = system_clock().steady();
  return wait();
}

std::optional<Ended> Child::poll() {
  if (pid_ <= 0)
    return Ended{};
  int status = 0;
  const pid_t got = ::waitpid(pid_, &status, WNOHANG);
  if (got == 0 || (got < 0 && errno == EINTR))
    return std::nullopt;
  pid_ = 0;
  return Ended{.status = got < 0 ? 0 : status};
}

Ended Child::wait() {
  if (deadline_.ns == 0 && pid_ > 0) {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {}
    pid_ = 0;
    return {.status = status};
  }
  bool late = false;
  SteadyTime give_up;
  for (int pause_ms = 1;; pause_ms = std::min(2 * pause_ms, wait_ms_max)) {
    if (auto ended = poll()) {
      ended->late = late;
      return *ended;
    }
    const SteadyTime now = system_clock().steady();
    if (!late && deadline_.ns != 0 && now >= deadline_) {
      late = true;
      end();
      give_up = now + kill_patience;
    }
    if (late && now > give_up) {
      pid_ = 0;
      return {.status = SIGKILL, .late = true};
    }
    ::poll(nullptr, 0, pause_ms);
  }
}

void Child::signal(int number) const {
  if (pid_ > 0)
    ::kill(leads_group_ ? -pid_ : pid_, number);
}

// The process that watches over a whole tree kills it on SIGTERM.
void Child::end() const {
  if (pid_ > 0 && whole_tree_)
    ::kill(pid_, SIGTERM);
  else
    signal(SIGKILL);
}

int Child::release() {
  return std::exchange(pid_, 0);
}

Result<Child> spawn(const Spawn& request) {
  if (request.argv.empty() && !request.body)
    return fail(Code::invalid, "no command to start");
  std::vector<std::string> words = request.argv;
  std::vector<std::string> variables = request.env ? *request.env : our_environment();
  const Streams streams = BILLOW_TRY(prepare_streams(request));
  const Prepared prepared{.request = request,
                          .argv = pointers(words),
                          .env = pointers(variables),
                          .fds = streams.fds,
                          .first_free_fd = streams.first_free_fd};
  const int pid =
      BILLOW_TRY(needs_fork(request) ? fork_child(prepared) : posix_spawn_child(prepared));
  Child child;
  child.pid_ = pid;
  child.leads_group_ =
      !request.whole_tree && (request.group != Group::ours || request.terminal >= 0);
  child.whole_tree_ = request.whole_tree;
  child.deadline_ = request.deadline;
  return child;
}

std::vector<std::string> our_environment(const std::vector<std::string>& changes) {
  const auto changed = [&](std::string_view entry) {
    const std::string_view name = entry.substr(0, entry.find('='));
    return std::any_of(changes.begin(), changes.end(), [&](std::string_view change) {
      return change.substr(0, change.find('=')) == name;
    });
  };
  std::vector<std::string> out;
  for (char** at = environ; at && *at; ++at)
    if (!changed(*at))
      out.emplace_back(*at);
  out.insert(out.end(), changes.begin(), changes.end());
  return out;
}

Result<Pipe> Pipe::create() {
  int ends[2];
  if (platform::make_pipe(ends) != 0)
    return fail_errno("pipe", errno);
  return Pipe{Fd(ends[0]), Fd(ends[1])};
}

Status replace_this_program(const Spawn& request) {
  if (request.argv.empty())
    return fail(Code::invalid, "no command to start");
  std::vector<std::string> words = request.argv;
  std::vector<std::string> variables = request.env ? *request.env : our_environment();
  const std::vector<char*> argv = pointers(words);
  std::vector<char*> env = pointers(variables);
  if (!request.cwd.empty() && ::chdir(request.cwd.c_str()) != 0 &&
      !(request.cwd_or_root && ::chdir("/") == 0))
    return fail_errno(request.cwd, errno);
  close_on_exec_from(3);
  // Above every target, so that none overwrites another that is still to be duplicated.
  int first_free = 3;
  for (const GivenFd& given : request.fds)
    first_free = std::max(first_free, given.as + 1);
  std::vector<GivenFd> lifted;
  for (const GivenFd& given : request.fds)
    lifted.push_back({::fcntl(given.fd, F_DUPFD_CLOEXEC, first_free), given.as});
  for (const GivenFd& given : lifted)
    if (given.fd < 0 || ::dup2(given.fd, given.as) < 0)
      return fail_errno("connect a descriptor", errno);
  reset_signals(request.signals == Signals::keep_ignored);
  char** const before = environ;
  environ = env.data();
  ::execvp(request.program.empty() ? argv[0] : request.program.c_str(), argv.data());
  const int error = errno;
  environ = before;
  return fail_errno(request.argv.front(), error);
}

}  // namespace billow::process
