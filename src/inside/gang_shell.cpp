#include "inside/gang_shell.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <map>

#include "base/crypto.h"
#include "base/text.h"
#include "client/frame/console.h"
#include "client/frame/server_commands.h"

namespace billow::client {
namespace {

constexpr const char* socket_variable = "BILLOW_RANKS_SOCKET";
constexpr std::size_t line_bytes_max = 1 << 20;
constexpr Duration end_grace = seconds(5);

std::atomic<int> caught{0};
extern "C" void note_signal(int number) {
  caught = number;
}
void watch_signals() {
  for (int s : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2}) {
    struct sigaction action {};
    action.sa_handler = note_signal;
    ::sigaction(s, &action, nullptr);
  }
  ::signal(SIGPIPE, SIG_IGN);
}

// Whole lines out of a stream. What has no end of line within the limit is nobody we talk to.
struct Lines {
  Fd fd;
  std::string pending;
  bool open = true;
  std::vector<std::string> take() {
    char buffer[65536];
    const ssize_t n = ::recv(fd.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
      open = false;
    if (n > 0)
      pending.append(buffer, static_cast<std::size_t>(n));
    std::vector<std::string> out;
    for (auto at = pending.find('\n'); at != std::string::npos; at = pending.find('\n')) {
      out.push_back(pending.substr(0, at));
      pending.erase(0, at + 1);
    }
    if (pending.size() > line_bytes_max)
      open = false;
    return out;
  }
  // Blocking: what is said here is little, and whoever reads it does nothing else.
  void say(const std::string& line) {
    std::string_view left = line;
    while (!left.empty()) {
      const ssize_t n = ::send(fd.get(), left.data(), left.size(), MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR)
        continue;
      if (n < 0 && errno == EAGAIN) {
        pollfd p{fd.get(), POLLOUT, 0};
        ::poll(&p, 1, 1000);
        continue;
      }
      if (n <= 0)
        return void(open = false);
      left.remove_prefix(static_cast<std::size_t>(n));
    }
  }
};

struct Started {
  pid_t pid = 0;
  Fd out, err;
};
Result<Started> start_shell(const std::string& command) {
  int out[2], err[2];
  if (::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(err, O_CLOEXEC) != 0)
    return fail_errno("pipe", errno);
  Started made{0, Fd(out[0]), Fd(err[0])};
  const Fd out_end(out[1]), err_end(err[1]);
  made.pid = ::fork();
  if (made.pid < 0)
    return fail_errno("fork", errno);
  if (made.pid == 0) {
    ::setpgid(0, 0);
    for (int s : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE})
      ::signal(s, SIG_DFL);
    ::dup2(out_end.get(), 1);
    ::dup2(err_end.get(), 2);
    const int null = ::open("/dev/null", O_RDONLY);
    ::dup2(null, 0);
    ::execl("/bin/sh", "sh", "-c", command.c_str(), static_cast<char*>(nullptr));
    ::_exit(127);
  }
  ::fcntl(made.out.get(), F_SETFL, O_NONBLOCK);
  ::fcntl(made.err.get(), F_SETFL, O_NONBLOCK);
  return made;
}

int code_of(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool decoded(const std::string& text, std::string& out) {
  return base64_decode(text, out);
}

sockaddr_un abstract_address(const std::string& name, socklen_t& length) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(),
              std::min(name.size(), sizeof(address.sun_path) - 1));
  length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

}  // namespace

bool starts_the_others(const std::vector<std::string>& command) {
  if (const char* how = std::getenv("BILLOW_LAUNCH"))
    return std::string_view(how) == "first";
  const std::string& first = command.front();
  const std::string name = first.substr(first.rfind('/') + 1);
  for (const char* known :
       {"mpirun", "mpiexec", "orterun", "prterun", "mpirun.openmpi", "mpiexec.openmpi"})
    if (name == known)
      return true;
  return false;
}

int run_leading(const std::vector<std::string>& command, GangShell shell) {
  const std::string name = "billow-ranks-" + random_token(12);
  socklen_t length = 0;
  const sockaddr_un address = abstract_address(name, length);
  const Fd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener ||
      ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      ::listen(listener.get(), 128) != 0)
    return report(
        {Code::internal, fmt::format("the launcher's socket: {}", ::strerror(errno)), ""});
  std::vector<Lines> nodes;
  for (Fd& fd : shell.nodes) {
    nodes.push_back({std::move(fd), {}, true});
    if (!nodes.back().fd)
      nodes.back().open = false;
  }
  const std::string rsh = executable_dir() + "/billow rsh";
  ::setenv(socket_variable, name.c_str(), 1);
  // Open MPI 4 and 5: how it reaches other nodes, which ones there are, and that it starts each of
  // them from here.
  ::setenv("OMPI_MCA_plm_rsh_agent", rsh.c_str(), 0);
  ::setenv("OMPI_MCA_plm_rsh_no_tree_spawn", "1", 0);
  ::setenv("PRTE_MCA_plm_ssh_agent", rsh.c_str(), 0);
  ::setenv("PRTE_MCA_plm_ssh_no_tree_spawn", "1", 0);
  if (const char* hosts = std::getenv("BILLOW_HOSTFILE")) {
    ::setenv("OMPI_MCA_orte_default_hostfile", hosts, 0);
    ::setenv("PRTE_MCA_prte_default_hostfile", hosts, 0);
  }
  if (::geteuid() == 0)
    ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0), ::setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);

  const pid_t pid = ::fork();
  if (pid < 0)
    return report({Code::internal, "fork failed", ""});
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::setpgid(0, 0);
    std::vector<std::string> words = command;
    std::vector<char*> argv;
    for (auto& w : words)
      argv.push_back(w.data());
    argv.push_back(nullptr);
    ::execvp(argv[0], argv.data());
    (void)write_all(2, fmt::format("{}: {}\n", command[0], ::strerror(errno)));
    ::_exit(errno == ENOENT ? 127 : 126);
  }
  watch_signals();
  struct Asking {
    Lines lines;
    std::size_t node = 0;  // 0: has not asked yet
  };
  std::map<std::uint64_t, Asking> asking;
  std::uint64_t next = 1;
  const auto node_named = [&](const std::string& host) -> std::size_t {
    for (std::size_t i = 1; i < nodes.size(); ++i)
      if ((i < shell.names.size() && shell.names[i] == host) ||
          (i < shell.addresses.size() && shell.addresses[i] == host))
        return i;
    return 0;
  };
  int status = 0;
  while (::waitpid(pid, &status, WNOHANG) != pid) {
    if (const int number = caught.exchange(0))
      ::kill(-pid, number);
    std::vector<pollfd> fds{{listener.get(), POLLIN, 0}};
    for (const Lines& node : nodes)
      fds.push_back({node.open ? node.fd.get() : -1, POLLIN, 0});
    std::vector<std::uint64_t> ids;
    for (const auto& [id, one] : asking)
      fds.push_back({one.lines.fd.get(), POLLIN, 0}), ids.push_back(id);
    ::poll(fds.data(), fds.size(), 50);
    if (fds[0].revents)
      if (Fd peer(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)); peer) {
        ucred who{};
        socklen_t size = sizeof who;
        // An abstract socket has no owner but whoever we accept.
        if (::getsockopt(peer.get(), SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 &&
            who.uid == ::geteuid())
          asking[next++] = {{std::move(peer), {}, true}, 0};
      }
    for (std::size_t i = 1; i < nodes.size(); ++i) {
      if (!nodes[i].open || !fds[1 + i].revents)
        continue;
      for (const std::string& line : nodes[i].take()) {
        const auto words = split(line, ' ');
        const auto id = words.size() == 3 ? parse_int(words[1], 1, INT64_MAX)
                                          : Result<std::int64_t>(fail(Code::invalid, ""));
        const auto found = id ? asking.find(static_cast<std::uint64_t>(*id)) : asking.end();
        if (found == asking.end() || found->second.node != i)
          continue;
        found->second.lines.say(words[0] + " " + words[2] + "\n");
        if (words[0] == "exit")
          asking.erase(found);
      }
      if (nodes[i].open)
        continue;
      const std::string who = i < shell.names.size() ? shell.names[i] : fmt::format("rank {}", i);
      (void)write_all(2, fmt::format("billow: node {} of the gang is gone\n", who));
      std::erase_if(asking, [&](auto& one) { return one.second.node == i; });
    }
    for (std::size_t k = 0; k < ids.size(); ++k) {
      const auto found = asking.find(ids[k]);
      if (found == asking.end() || !fds[1 + nodes.size() + k].revents)
        continue;
      for (const std::string& line : found->second.lines.take()) {
        const auto words = split(line, ' ');
        std::string host;
        if (found->second.node != 0 || words.size() != 3 || words[0] != "run" ||
            !decoded(words[1], host))
          continue;
        const std::size_t node = node_named(host);
        if (node == 0 || !nodes[node].open) {
          found->second.lines.say(
              "err " + base64(fmt::format("billow rsh: {} is no other node of this gang\n", host)) +
              "\nexit 255\n");
          continue;
        }
        found->second.node = node;
        nodes[node].say(fmt::format("run {} {}\n", found->first, words[2]));
      }
      if (found->second.lines.open)
        continue;
      if (found->second.node)
        nodes[found->second.node].say(fmt::format("drop {}\n", found->first));
      asking.erase(found);
    }
  }
  for (Lines& node : nodes)
    if (node.open)
      node.say("end\n");
  return code_of(status);
}

int run_following(Fd first) {
  ::fcntl(first.get(), F_SETFL, O_NONBLOCK);
  Lines lines{std::move(first), {}, true};
  watch_signals();
  std::map<std::uint64_t, Started> running;
  bool over = false;
  const auto pass = [&](std::uint64_t id, Fd& from, const char* what) {
    char buffer[32768];
    for (int round = 0; from && round < 64; ++round) {
      const ssize_t n = ::read(from.get(), buffer, sizeof buffer);
      if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
      if (n <= 0)
        return from.reset();
      lines.say(fmt::format("{} {} {}\n", what, id, base64({buffer, static_cast<std::size_t>(n)})));
    }
  };
  while (lines.open && !over) {
    if (const int number = caught.exchange(0)) {
      for (const auto& [id, one] : running)
        ::kill(-one.pid, number);
      if (number == SIGTERM)
        break;
    }
    std::vector<pollfd> fds{{lines.fd.get(), POLLIN, 0}};
    for (const auto& [id, one] : running)
      fds.push_back({one.out.get(), POLLIN, 0}), fds.push_back({one.err.get(), POLLIN, 0});
    ::poll(fds.data(), fds.size(), 50);
    if (fds[0].revents)
      for (const std::string& line : lines.take()) {
        const auto words = split(line, ' ');
        over = over || words[0] == "end";
        const auto id = words.size() > 1 ? parse_int(words[1], 1, INT64_MAX)
                                         : Result<std::int64_t>(fail(Code::invalid, ""));
        if (!id)
          continue;
        const auto key = static_cast<std::uint64_t>(*id);
        std::string command;
        if (words[0] == "drop" && running.contains(key))
          ::kill(-running.at(key).pid, SIGTERM);
        if (words[0] != "run" || words.size() != 3 || !decoded(words[2], command))
          continue;
        auto started = start_shell(command);
        if (started)
          running[key] = std::move(*started);
        else
          lines.say(fmt::format("err {} {}\nexit {} 255\n", key,
                                base64(started.error().message + "\n"), key));
      }
    for (auto at = running.begin(); at != running.end();) {
      Started& one = at->second;
      pass(at->first, one.out, "out");
      pass(at->first, one.err, "err");
      int status = 0;
      if (::waitpid(one.pid, &status, WNOHANG) != one.pid) {
        ++at;
        continue;
      }
      pass(at->first, one.out, "out");
      pass(at->first, one.err, "err");
      lines.say(fmt::format("exit {} {}\n", at->first, code_of(status)));
      at = running.erase(at);
    }
  }
  for (const auto& [id, one] : running)
    ::kill(-one.pid, SIGTERM);
  const SteadyTime give_up = system_clock().steady() + end_grace;
  while (!running.empty() && system_clock().steady() < give_up) {
    std::erase_if(running, [](const auto& one) {
      return ::waitpid(one.second.pid, nullptr, WNOHANG) == one.second.pid;
    });
    ::poll(nullptr, 0, 10);
  }
  for (const auto& [id, one] : running)
    ::kill(-one.pid, SIGKILL);
  if (over)
    return 0;
  (void)write_all(2, "billow: the first node of the gang is gone\n");
  return 1;
}

namespace {

// Like ssh: the words after the host are one line for the shell there.
int cmd_rsh(std::vector<std::string> args) {
  std::size_t at = 0;
  while (at < args.size() && args[at].starts_with('-'))
    ++at;  // options of ssh that a caller may add: -x, -n, -q
  if (at + 1 >= args.size())
    return report_usage({Code::invalid, "name a host and a command",
                         "billow rsh HOST COMMAND…, in a job that runs mpirun over several nodes"});
  const char* name = std::getenv(socket_variable);
  if (!name)
    return report({Code::conflict, "there is no launcher to ask",
                   "this works inside a job of several nodes whose command is mpirun, or that has "
                   "BILLOW_LAUNCH=first"});
  std::string command;
  for (std::size_t i = at + 1; i < args.size(); ++i)
    command += (command.empty() ? "" : " ") + args[i];
  socklen_t length = 0;
  const sockaddr_un address = abstract_address(name, length);
  Lines lines{Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)), {}, true};
  if (!lines.fd ||
      ::connect(lines.fd.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0)
    return report({Code::unavailable,
                   fmt::format("the launcher does not answer: {}", ::strerror(errno)), ""});
  lines.say(fmt::format("run {} {}\n", base64(args[at]), base64(command)));
  while (lines.open) {
    pollfd p{lines.fd.get(), POLLIN, 0};
    if (::poll(&p, 1, -1) < 0 && errno != EINTR)
      break;
    for (const std::string& line : lines.take()) {
      const auto space = line.find(' ');
      const std::string what = line.substr(0, space),
                        rest = space == std::string::npos ? "" : line.substr(space + 1);
      std::string bytes;
      if (what == "exit")
        return static_cast<int>(parse_int(rest, 0, 255).value_or(255));
      if ((what == "out" || what == "err") && decoded(rest, bytes))
        (void)write_all(what == "out" ? 1 : 2, bytes);
    }
  }
  return report({Code::unavailable, fmt::format("node {} is gone", args[at]), ""});
}

}  // namespace

void add_gang_shell_commands(CommandTable& table) {
  table.push_back({.name = "rsh",
                   .summary = "start a command on another node of the same gang (what mpirun is "
                              "given in place of ssh)",
                   .example = "billow rsh gpu-2 hostname",
                   .run_args = cmd_rsh,
                   .usage = "HOST COMMAND…",
                   .details =
                       "Only inside a job of several nodes whose command is mpirun or mpiexec, or "
                       "that has BILLOW_LAUNCH=first: its command runs on the first node,\n"
                       "and what it starts elsewhere runs in the job's own tasks there.",
                   .operands = Operands::command,
                   .group = "head",
                   .talks_to_head = false,
                   .prints_json = false});
}

}  // namespace billow::client
