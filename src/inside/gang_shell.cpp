#include "inside/gang_shell.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <map>

#include "base/crypto.h"
#include "base/text.h"
#include "client/frame/console.h"
#include "client/frame/server_commands.h"
#include "process/spawn.h"

namespace billow::client {
namespace {

constexpr const char* socket_variable = "BILLOW_RANKS_SOCKET";
constexpr std::size_t command_bytes_max = 1 << 20;
constexpr Duration end_grace = seconds(5);
constexpr int poll_ms = 50;

std::atomic<int> shell_signal{0};
extern "C" void note_signal(int number) {
  shell_signal = number;
}
void watch_signals() {
  for (int s : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2}) {
    struct sigaction action {};
    action.sa_handler = note_signal;
    ::sigaction(s, &action, nullptr);
  }
  ::signal(SIGPIPE, SIG_IGN);
}

// Whole lines from a stream. A peer that sends a longer line than the limit is disconnected.
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
    if (pending.size() > command_bytes_max)
      open = false;
    return out;
  }
  // Blocks: the texts are short, and the reader does nothing else.
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
      if (n <= 0) {
        open = false;
        return;
      }
      left.remove_prefix(static_cast<std::size_t>(n));
    }
  }
};

struct Started {
  process::Child child;
  Fd out, err;
};
Result<Started> start_shell(const std::string& command) {
  process::Pipe out = BILLOW_TRY(process::Pipe::create()),
                err = BILLOW_TRY(process::Pipe::create());
  process::Spawn request;
  request.argv = {"/bin/sh", "-c", command};
  request.out = out.write.get();
  request.err = err.write.get();
  Started made{BILLOW_TRY(process::spawn(request)), std::move(out.read), std::move(err.read)};
  ::fcntl(made.out.get(), F_SETFL, O_NONBLOCK);
  ::fcntl(made.err.get(), F_SETFL, O_NONBLOCK);
  return made;
}

// The number in the second word of a line.
std::optional<std::uint64_t> number_in(const std::vector<std::string>& words) {
  if (words.size() < 2)
    return std::nullopt;
  const auto id = parse_int(words[1], 1, INT64_MAX);
  return id ? std::optional(static_cast<std::uint64_t>(*id)) : std::nullopt;
}

sockaddr_un abstract_address(const std::string& name, socklen_t& length) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(),
              std::min(name.size(), sizeof(address.sun_path) - 1));
  length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

// The environment of a command that starts the others: how Open MPI 4 and 5 reach other nodes,
// which nodes there are, and that each of them is started from here. The job's own settings win.
std::vector<std::string> launch_environment(const std::string& socket_name) {
  const std::string rsh = executable_dir() + "/billow rsh";
  std::vector<std::string> changes = {std::string(socket_variable) + "=" + socket_name};
  const auto unless_set = [&](const char* name, const std::string& value) {
    if (!std::getenv(name))
      changes.push_back(fmt::format("{}={}", name, value));
  };
  unless_set("OMPI_MCA_plm_rsh_agent", rsh);
  unless_set("OMPI_MCA_plm_rsh_no_tree_spawn", "1");
  unless_set("PRTE_MCA_plm_ssh_agent", rsh);
  unless_set("PRTE_MCA_plm_ssh_no_tree_spawn", "1");
  if (const char* hosts = std::getenv("BILLOW_HOSTFILE")) {
    unless_set("OMPI_MCA_orte_default_hostfile", hosts);
    unless_set("PRTE_MCA_prte_default_hostfile", hosts);
  }
  if (::geteuid() == 0) {
    unless_set("OMPI_ALLOW_RUN_AS_ROOT", "1");
    unless_set("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
  }
  return process::our_environment(changes);
}

// The first node while its command runs: passes requests of `billow rsh` to the other nodes, and
// their output back.
class Leader {
 public:
  Leader(GangShell shell, Fd listener) : shell_(std::move(shell)), listener_(std::move(listener)) {
    for (Fd& fd : shell_.nodes) {
      const bool open = static_cast<bool>(fd);
      nodes_.push_back({std::move(fd), {}, open});
    }
  }

  int run(process::Child command) {
    watch_signals();
    std::optional<process::Ended> ended;
    while (!(ended = command.poll())) {
      if (const int number = shell_signal.exchange(0))
        command.signal(number);
      step();
    }
    for (Lines& node : nodes_)
      if (node.open)
        node.say("end\n");
    return ended->code();
  }

 private:
  struct Asking {
    Lines lines;
    std::size_t node = 0;  // 0: has not asked yet
  };

  void step() {
    std::vector<pollfd> fds{{listener_.get(), POLLIN, 0}};
    for (const Lines& node : nodes_)
      fds.push_back({node.open ? node.fd.get() : -1, POLLIN, 0});
    std::vector<std::uint64_t> ids;
    for (const auto& [id, one] : asking_) {
      fds.push_back({one.lines.fd.get(), POLLIN, 0});
      ids.push_back(id);
    }
    ::poll(fds.data(), fds.size(), poll_ms);
    if (fds[0].revents)
      accept_one();
    for (std::size_t i = 1; i < nodes_.size(); ++i)
      if (nodes_[i].open && fds[1 + i].revents)
        hear_node(i);
    for (std::size_t k = 0; k < ids.size(); ++k)
      if (fds[1 + nodes_.size() + k].revents)
        hear_asking(ids[k]);
  }

  // An abstract socket has no owner: only processes of our own user are accepted.
  void accept_one() {
    Fd peer(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    ucred who{};
    socklen_t size = sizeof who;
    if (peer && ::getsockopt(peer.get(), SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 &&
        who.uid == ::geteuid())
      asking_[next_++] = {{std::move(peer), {}, true}, 0};
  }

  // "out ID BYTES", "err ID BYTES" and "exit ID CODE" of a command there.
  void hear_node(std::size_t i) {
    for (const std::string& line : nodes_[i].take()) {
      const auto words = split(line, ' ');
      const auto id = number_in(words);
      const auto found = id && words.size() == 3 ? asking_.find(*id) : asking_.end();
      if (found == asking_.end() || found->second.node != i)
        continue;
      found->second.lines.say(words[0] + " " + words[2] + "\n");
      if (words[0] == "exit")
        asking_.erase(found);
    }
    if (nodes_[i].open)
      return;
    const std::string who = i < shell_.names.size() ? shell_.names[i] : fmt::format("rank {}", i);
    (void)write_all(2, fmt::format("billow: node {} of the gang disconnected\n", who));
    std::erase_if(asking_, [&](auto& one) { return one.second.node == i; });
  }

  // "run HOST COMMAND" of a `billow rsh` on this node.
  void hear_asking(std::uint64_t id) {
    const auto found = asking_.find(id);
    if (found == asking_.end())
      return;
    Asking& one = found->second;
    for (const std::string& line : one.lines.take()) {
      const auto words = split(line, ' ');
      std::string host;
      if (one.node != 0 || words.size() != 3 || words[0] != "run" || !base64_decode(words[1], host))
        continue;
      const std::size_t node = node_named(host);
      if (node == 0 || !nodes_[node].open) {
        one.lines.say(
            "err " +
            base64(fmt::format("billow rsh: {} is not another node of this gang\n", host)) +
            "\nexit 255\n");
        continue;
      }
      one.node = node;
      nodes_[node].say(fmt::format("run {} {}\n", id, words[2]));
    }
    if (one.lines.open)
      return;
    if (one.node)
      nodes_[one.node].say(fmt::format("drop {}\n", id));
    asking_.erase(found);
  }

  std::size_t node_named(const std::string& host) const {
    for (std::size_t i = 1; i < nodes_.size(); ++i)
      if ((i < shell_.names.size() && shell_.names[i] == host) ||
          (i < shell_.addresses.size() && shell_.addresses[i] == host))
        return i;
    return 0;
  }

  GangShell shell_;
  Fd listener_;
  std::vector<Lines> nodes_;  // by rank
  std::map<std::uint64_t, Asking> asking_;
  std::uint64_t next_ = 1;
};

// Another node: starts what the first node asks for, and sends the output there.
class Follower {
 public:
  explicit Follower(Fd first) : lines_{std::move(first), {}, true} {
    ::fcntl(lines_.fd.get(), F_SETFL, O_NONBLOCK);
  }

  int run() {
    watch_signals();
    while (lines_.open && !over_) {
      if (const int number = shell_signal.exchange(0)) {
        signal_all(number);
        if (number == SIGTERM)
          break;
      }
      std::vector<pollfd> fds{{lines_.fd.get(), POLLIN, 0}};
      for (const auto& [id, one] : running_) {
        fds.push_back({one.out.get(), POLLIN, 0});
        fds.push_back({one.err.get(), POLLIN, 0});
      }
      ::poll(fds.data(), fds.size(), poll_ms);
      if (fds[0].revents)
        for (const std::string& line : lines_.take())
          obey(split(line, ' '));
      report_output();
    }
    end_all();
    if (over_)
      return 0;
    (void)write_all(2, "billow: the first node of the gang disconnected\n");
    return 1;
  }

 private:
  void signal_all(int number) {
    for (const auto& [id, one] : running_)
      one.child.signal(number);
  }

  // "run ID COMMAND", "drop ID" or "end".
  void obey(const std::vector<std::string>& words) {
    over_ = over_ || words[0] == "end";
    const auto id = number_in(words);
    if (!id)
      return;
    if (words[0] == "drop" && running_.contains(*id))
      running_.at(*id).child.signal(SIGTERM);
    std::string command;
    if (words[0] != "run" || words.size() != 3 || !base64_decode(words[2], command))
      return;
    auto started = start_shell(command);
    if (started)
      running_[*id] = std::move(*started);
    else
      lines_.say(fmt::format("err {} {}\nexit {} 255\n", *id,
                             base64(started.error().message + "\n"), *id));
  }

  void pass(std::uint64_t id, Fd& from, const char* what) {
    char buffer[32768];
    for (int round = 0; from && round < 64; ++round) {
      const ssize_t n = ::read(from.get(), buffer, sizeof buffer);
      if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
      if (n <= 0)
        return from.reset();
      lines_.say(
          fmt::format("{} {} {}\n", what, id, base64({buffer, static_cast<std::size_t>(n)})));
    }
  }

  void report_output() {
    for (auto at = running_.begin(); at != running_.end();) {
      auto& [id, one] = *at;
      // Asked first: what it wrote before its end is then complete.
      const auto ended = one.child.poll();
      pass(id, one.out, "out");
      pass(id, one.err, "err");
      if (ended) {
        lines_.say(fmt::format("exit {} {}\n", id, ended->code()));
        at = running_.erase(at);
      } else {
        ++at;
      }
    }
  }

  void end_all() {
    signal_all(SIGTERM);
    const SteadyTime give_up = system_clock().steady() + end_grace;
    while (!running_.empty() && system_clock().steady() < give_up) {
      for (auto at = running_.begin(); at != running_.end();)
        at = at->second.child.poll() ? running_.erase(at) : std::next(at);
      ::poll(nullptr, 0, 10);
    }
    running_.clear();  // kills the rest
  }

  Lines lines_;
  std::map<std::uint64_t, Started> running_;
  bool over_ = false;
};

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
  Fd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener ||
      ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      ::listen(listener.get(), 128) != 0)
    return report(
        {Code::internal, fmt::format("the launcher's socket: {}", ::strerror(errno)), ""});
  process::Spawn request;
  request.argv = command;
  request.env = launch_environment(name);
  request.in = request.out = request.err = process::inherited;
  request.on_parent_death = SIGKILL;
  auto child = process::spawn(request);
  if (!child) {
    (void)write_all(2, child.error().message + "\n");
    return child.error().code == Code::not_found ? 127 : 126;
  }
  return Leader(std::move(shell), std::move(listener)).run(std::move(*child));
}

int run_following(Fd first) {
  return Follower(std::move(first)).run();
}

namespace {

// Like ssh: the words after the host are joined to one line for the shell there.
int cmd_rsh(std::vector<std::string> args) {
  std::size_t at = 0;
  while (at < args.size() && args[at].starts_with('-'))
    ++at;  // options of ssh that a caller may add: -x, -n, -q
  if (at + 1 >= args.size())
    return report_usage({Code::invalid, "name a host and a command",
                         "billow rsh HOST COMMAND…, in a job that runs mpirun over several nodes"});
  const char* name = std::getenv(socket_variable);
  if (!name)
    return report({Code::conflict, "this job has no launcher",
                   "use it inside a job on several nodes whose command is mpirun, or that sets "
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
      if ((what == "out" || what == "err") && base64_decode(rest, bytes))
        (void)write_all(what == "out" ? 1 : 2, bytes);
    }
  }
  return report({Code::unavailable, fmt::format("node {} disconnected", args[at]), ""});
}

}  // namespace

void add_gang_shell_commands(CommandTable& table) {
  table.push_back({.name = "rsh",
                   .summary = "start a command on another node of the same gang (mpirun uses it "
                              "in place of ssh)",
                   .example = "billow rsh gpu-2 hostname",
                   .run_args = cmd_rsh,
                   .usage = "HOST COMMAND…",
                   .details =
                       "Works inside a job on several nodes whose command is mpirun or mpiexec, or "
                       "that sets BILLOW_LAUNCH=first. The command runs on the first node;\n"
                       "what it starts on other nodes runs in the job's own tasks there.",
                   .operands = Operands::command,
                   .group = internal_group,
                   .talks_to_head = false,
                   .prints_json = false});
}

}  // namespace billow::client
