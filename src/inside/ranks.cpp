// The processes of one node of a gang. A job of several nodes, or with --procs, starts this in
// front of its command: it waits at the start barrier until every node has come (at the address the
// job itself will use, on the port after its own, so that a network that cannot carry the job is
// found out before it begins), starts the processes with their ranks, and puts the rank before each
// line they write. One that fails ends the others. In an elastic gang the first node goes on
// answering at the barrier: whoever takes a lost member's place there finds the others begun, and
// begins.
#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <optional>

#include "base/clock.h"
#include "base/crypto.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/text.h"
#include "client/frame/console.h"
#include "client/frame/server_commands.h"
#include "inside/gang_shell.h"

namespace billow::client {
namespace {

constexpr OptionSpec rank_options[] = {
    {"procs", 0, "N", "processes on this node (1)"},
    {"barrier", 0, "T", "wait this long for the other nodes before the command starts (2m)"},
};
constexpr Duration stop_grace = seconds(10);
constexpr std::size_t line_bytes_max = 64 << 10;  // longer lines are passed on in pieces

std::int64_t variable(const char* name, std::int64_t fallback) {
  const char* text = std::getenv(name);
  return text ? parse_int(text, 0, INT32_MAX).value_or(fallback) : fallback;
}
std::string text_variable(const char* name) {
  const char* text = std::getenv(name);
  return text ? text : "";
}

// ---- the barrier

struct Meeting {
  std::int64_t rank = 0, nodes = 1;
  std::int64_t repairs = -1;  // -1: not an elastic gang
  std::string address, port, job;
  std::string key;  // that only this job's tasks have; empty: of an older head
  std::vector<std::string> names;
  SteadyTime deadline;

  std::string name_of(std::int64_t r) const {
    return static_cast<std::size_t>(r) < names.size() ? names[static_cast<std::size_t>(r)]
                                                      : fmt::format("node {}", r);
  }
  // Both sides show that they have the key: on the way here a command is started for whoever is
  // taken for the first node.
  std::string proof(const char* what, std::int64_t of, std::string_view nonce) const {
    return hmac_sha256_hex(key, fmt::format("{} {} {} {}", what, job, of, nonce));
  }
  std::string hello(const std::string& nonce) const {
    return key.empty()
               ? fmt::format("billow {} {}\n", job, rank)
               : fmt::format("billow {} {} {} {}\n", job, rank, nonce, proof("hello", rank, nonce));
  }
  std::string answer(std::int64_t to, const std::string& nonce) const {
    return key.empty() ? "go\n" : fmt::format("go {}\n", proof("go", to, nonce));
  }
  // The rank that says hello, and its answer; nothing for a stranger, or another job's.
  std::optional<std::pair<std::int64_t, std::string>> greeted(const std::string& line) const {
    const auto words = split(line, ' ');
    if (words.size() != (key.empty() ? 3u : 5u) || words[0] != "billow" || words[1] != job)
      return std::nullopt;
    const auto who = parse_int(words[2], 1, nodes - 1);
    if (!who || (!key.empty() && !equal_constant_time(words[4], proof("hello", *who, words[3]))))
      return std::nullopt;
    return std::pair(*who, answer(*who, key.empty() ? "" : words[3]));
  }
  int left_ms() const {
    return static_cast<int>(std::max<std::int64_t>(0, (deadline - system_clock().steady()).ms()));
  }
};

bool readable(int fd, int ms) {
  pollfd p{fd, POLLIN, 0};
  return ::poll(&p, 1, ms) > 0;
}

// A line of at most 400 bytes; empty where none came in time.
std::string read_line(int fd, int ms) {
  std::string line;
  for (char c; line.size() < 400 && readable(fd, ms) && ::read(fd, &c, 1) == 1;) {
    if (c == '\n')
      return line;
    line += c;
  }
  return {};
}

// At the address the others were told; where it is not one of this machine's own (it is behind a
// translator), at all of them.
Result<Fd> listen_here(const Meeting& m) {
  int why = EADDRNOTAVAIL;
  for (const char* host : {m.address.c_str(), static_cast<const char*>(nullptr)}) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
    if (::getaddrinfo(host, m.port.c_str(), &hints, &found) != 0)
      continue;
    Fd fd(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    if (fd)
      ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    const bool bound = fd && ::bind(fd.get(), found->ai_addr, found->ai_addrlen) == 0 &&
                       ::listen(fd.get(), 4096) == 0;
    why = errno;
    ::freeaddrinfo(found);
    if (bound)
      return fd;
    if (why == EADDRINUSE)
      return fail(Code::conflict,
                  fmt::format("port {} of the start barrier is in use on the first node", m.port));
  }
  return fail_errno("start barrier", why);
}

// The listener is kept where later members may come; the connections where this node starts what
// the others run.
Result<Fd> meet_as_first(const Meeting& m, std::vector<Fd>& others) {
  Fd listener = BILLOW_TRY(listen_here(m));
  if (m.repairs > 0)
    return listener;  // it takes a lost member's place: the others have begun
  others = std::vector<Fd>(static_cast<std::size_t>(m.nodes));
  std::vector<std::string> answers(others.size());
  std::int64_t missing = m.nodes - 1;
  while (missing > 0) {
    if (!readable(listener.get(), m.left_ms())) {
      std::string who;
      for (std::int64_t r = 1; r < m.nodes; ++r)
        if (!others[static_cast<std::size_t>(r)])
          who += (who.empty() ? "" : ", ") + fmt::format("rank {} ({})", r, m.name_of(r));
      return fail(Code::timed_out, fmt::format("the gang is not complete: {} did not come", who),
                  fmt::format("can they reach {} port {}?", m.address, m.port));
    }
    Fd peer(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!peer)
      continue;
    const auto who = m.greeted(read_line(peer.get(), 2000));
    if (!who)
      continue;
    Fd& place = others[static_cast<std::size_t>(who->first)];
    if (!place)
      --missing;
    place = std::move(peer);
    answers[static_cast<std::size_t>(who->first)] = who->second;
  }
  for (std::size_t i = 0; i < others.size(); ++i)
    if (others[i])
      (void)::send(others[i].get(), answers[i].data(), answers[i].size(), MSG_NOSIGNAL);
  return m.repairs < 0 ? Fd() : std::move(listener);
}

Result<Fd> meet_as_other(const Meeting& m) {
  std::string trouble = "nobody listens there";
  while (m.left_ms() > 0) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    if (const int rc = ::getaddrinfo(m.address.c_str(), m.port.c_str(), &hints, &found); rc != 0) {
      trouble = ::gai_strerror(rc);
    } else {
      Fd fd(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      int rc2 = fd ? ::connect(fd.get(), found->ai_addr, found->ai_addrlen) : -1;
      if (rc2 != 0 && errno == EINPROGRESS) {
        pollfd p{fd.get(), POLLOUT, 0};
        if (::poll(&p, 1, std::min(m.left_ms(), 3000)) > 0) {
          int error = 0;
          socklen_t length = sizeof error;
          ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
          errno = error;
          rc2 = error == 0 ? 0 : -1;
        } else {
          errno = ETIMEDOUT;
        }
      }
      ::freeaddrinfo(found);
      if (rc2 == 0) {
        ::fcntl(fd.get(), F_SETFL, 0);
        const std::string nonce = random_token(12), hello = m.hello(nonce);
        (void)::send(fd.get(), hello.data(), hello.size(), MSG_NOSIGNAL);
        if (read_line(fd.get(), m.left_ms()) + "\n" == m.answer(m.rank, nonce))
          return fd;
        trouble = "the first node gave up, or somebody else answers in its place";
      } else {
        trouble = ::strerror(errno);
      }
    }
    ::poll(nullptr, 0, 50);
  }
  return fail(Code::timed_out,
              fmt::format("rank {} cannot meet the first node ({}) at {} port {}: {}", m.rank,
                          m.name_of(0), m.address, m.port, trouble),
              "the nodes of a gang must reach each other: see their firewall, and `billow nodes`");
}

// ---- the processes

struct Process {
  pid_t pid = 0;
  std::int64_t rank = 0;
  Fd out, err;
  std::string out_line, err_line;
  bool running = true;
};

std::atomic<int> caught{0};
extern "C" void on_signal(int number) {
  caught = number;
}

void pass_on(std::string& line, std::int64_t rank, int to, bool end) {
  std::string text;
  std::size_t from = 0;
  for (auto at = line.find('\n'); at != std::string::npos; at = line.find('\n', from)) {
    text += fmt::format("[{}] ", rank) + line.substr(from, at - from + 1);
    from = at + 1;
  }
  line.erase(0, from);
  if (!line.empty() && (end || line.size() > line_bytes_max)) {
    text += fmt::format("[{}] ", rank) + line + "\n";
    line.clear();
  }
  if (!text.empty())
    (void)write_all(to, text);
}

// False: it is closed.
bool drain(Fd& from, std::string& line, std::int64_t rank, int to) {
  char buffer[65536];
  const ssize_t got = ::read(from.get(), buffer, sizeof buffer);
  if (got < 0 && errno == EINTR)
    return true;
  if (got > 0)
    line.append(buffer, static_cast<std::size_t>(got));
  pass_on(line, rank, to, got <= 0);
  if (got <= 0)
    from.reset();
  return got > 0;
}

Result<Process> start(const std::vector<std::string>& command,
                      std::int64_t rank,
                      std::int64_t local,
                      bool has_input) {
  int out[2], err[2];
  if (::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(err, O_CLOEXEC) != 0)
    return fail_errno("pipe", errno);
  Process p;
  p.rank = rank;
  p.out = Fd(out[0]);
  p.err = Fd(err[0]);
  const Fd out_end(out[1]), err_end(err[1]);
  p.pid = ::fork();
  if (p.pid < 0)
    return fail_errno("fork", errno);
  if (p.pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::setpgid(0, 0);  // a signal for the group reaches the launcher, and by it each of them once
    for (int s : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE})
      ::signal(s, SIG_DFL);
    ::dup2(out_end.get(), 1);
    ::dup2(err_end.get(), 2);
    if (!has_input) {
      const int null = ::open("/dev/null", O_RDONLY);
      ::dup2(null, 0);
    }
    ::setenv("RANK", std::to_string(rank).c_str(), 1);
    ::setenv("LOCAL_RANK", std::to_string(local).c_str(), 1);
    std::vector<std::string> words = command;
    std::vector<char*> argv;
    for (auto& w : words)
      argv.push_back(w.data());
    argv.push_back(nullptr);
    ::execvp(argv[0], argv.data());
    const std::string trouble = fmt::format("{}: {}\n", command[0], ::strerror(errno));
    (void)!::write(2, trouble.data(), trouble.size());
    ::_exit(errno == ENOENT ? 127 : 126);
  }
  return p;
}

int run_processes(const std::vector<std::string>& command,
                  std::int64_t node,
                  std::int64_t procs,
                  const Meeting& m,
                  const Fd& latecomers) {
  std::vector<Process> all;
  for (std::int64_t i = 0; i < procs; ++i) {
    auto made = start(command, node * procs + i, i, node == 0 && i == 0);
    if (!made)
      return report(made.error());
    all.push_back(std::move(*made));
  }
  for (int s : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2}) {
    struct sigaction action {};
    action.sa_handler = on_signal;
    ::sigaction(s, &action, nullptr);
  }
  int code = 0;
  bool ending = false;
  SteadyTime kill_at;
  const auto signal_all = [&](int number) {
    for (const Process& p : all)
      if (p.running)
        ::kill(-p.pid, number);
  };
  while (true) {
    if (const int number = caught.exchange(0))
      signal_all(number);
    if (ending && kill_at.ns && system_clock().steady() > kill_at)
      signal_all(SIGKILL), kill_at = {};
    std::vector<pollfd> fds;
    std::vector<std::pair<Process*, bool>> whose;
    bool running = false;
    for (Process& p : all) {
      running = running || p.running;
      if (p.out)
        fds.push_back({p.out.get(), POLLIN, 0}), whose.emplace_back(&p, true);
      if (p.err)
        fds.push_back({p.err.get(), POLLIN, 0}), whose.emplace_back(&p, false);
    }
    // What a process left behind may hold its pipes open; its own end is what counts.
    if (!running)
      break;
    if (latecomers)
      fds.push_back({latecomers.get(), POLLIN, 0});
    ::poll(fds.data(), fds.size(), 100);
    if (latecomers && fds.back().revents & POLLIN)
      if (const Fd peer(::accept4(latecomers.get(), nullptr, nullptr, SOCK_CLOEXEC)); peer)
        if (const auto who = m.greeted(read_line(peer.get(), 2000)))
          (void)::send(peer.get(), who->second.data(), who->second.size(), MSG_NOSIGNAL);
    for (std::size_t i = 0; i < whose.size(); ++i) {
      if (!(fds[i].revents & (POLLIN | POLLHUP | POLLERR)))
        continue;
      auto [p, out] = whose[i];
      drain(out ? p->out : p->err, out ? p->out_line : p->err_line, p->rank, out ? 1 : 2);
    }
    for (Process& p : all) {
      int status = 0;
      if (!p.running || ::waitpid(p.pid, &status, WNOHANG) != p.pid)
        continue;
      p.running = false;
      for (int left = 64; left > 0 && p.out && readable(p.out.get(), 0); --left)
        if (!drain(p.out, p.out_line, p.rank, 1))
          break;
      for (int left = 64; left > 0 && p.err && readable(p.err.get(), 0); --left)
        if (!drain(p.err, p.err_line, p.rank, 2))
          break;
      pass_on(p.out_line, p.rank, 1, true);
      pass_on(p.err_line, p.rank, 2, true);
      const int its = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      if (its == 0 || ending)
        continue;
      code = its;
      ending = true;
      kill_at = system_clock().steady() + stop_grace;
      if (procs > 1)
        (void)write_all(
            2,
            fmt::format("billow: rank {} ended with code {}; the others of this node are stopped\n",
                        p.rank, its));
      signal_all(SIGTERM);
    }
  }
  return code;
}

int cmd_ranks(const Parsed& parsed) {
  if (parsed.operands.empty())
    return report_usage({Code::invalid, "no command", "billow ranks --procs 8 -- python train.py"});
  const auto procs = parse_int(parsed.get("procs", "1"), 1, limits::procs_per_node_max);
  if (!procs)
    return report_usage(Error(procs.error()).in("--procs"));
  const auto patience = parse_duration(parsed.get("barrier", "2m"));
  if (!patience)
    return report_usage(Error(patience.error()).in("--barrier"));
  Meeting m;
  m.rank = variable("NODE_RANK", 0);
  m.nodes = variable("NNODES", 1);
  m.address = text_variable("MASTER_ADDR");
  m.port = std::to_string(variable("MASTER_PORT", 0) + 1);
  m.repairs = variable("BILLOW_REPAIRS", -1);
  m.key = text_variable("BILLOW_GANG_KEY");
  m.job = text_variable("BILLOW_JOB_ID") + "." + text_variable("BILLOW_ATTEMPT");
  m.names = split(text_variable("BILLOW_NODES"), ',');
  m.deadline = system_clock().steady() + *patience;
  Fd met;
  std::vector<Fd> others;
  if (m.nodes > 1) {
    auto came = m.rank == 0 ? meet_as_first(m, others) : meet_as_other(m);
    if (!came)
      return report(came.error());
    met = std::move(*came);
  }
  if (m.nodes > 1 && !m.key.empty() && starts_the_others(parsed.operands))
    return m.rank == 0 ? run_leading(parsed.operands,
                                     {m.names, split(text_variable("BILLOW_ADDRESSES"), ','),
                                      std::move(others)})
                       : run_following(std::move(met));
  others.clear();
  if (m.rank != 0)
    met.reset();
  return run_processes(parsed.operands, m.rank, *procs, m, met);
}

}  // namespace

void add_rank_commands(CommandTable& table) {
  table.push_back({.name = "ranks",
                   .summary = "start the processes of one node of a gang (put before the command "
                              "of jobs with --nodes or --procs)",
                   .example = "billow ranks --procs 8 -- python train.py",
                   .run = cmd_ranks,
                   .usage = "[--] COMMAND [ARG…]",
                   .details =
                       "Waits for the other nodes (NNODES, NODE_RANK, MASTER_ADDR, MASTER_PORT), "
                       "sets RANK and LOCAL_RANK of each process, and puts [RANK] before\n"
                       "each line it writes.",
                   .options = {rank_options},
                   .operands = Operands::command,
                   .group = "head",
                   .talks_to_head = false,
                   .prints_json = false});
}

}  // namespace billow::client
