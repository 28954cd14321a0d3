// The processes of one node of a gang. A job on several nodes, or with --procs, has this in front
// of its command: it waits at the start barrier until every node has come, starts the processes
// with their ranks, and puts the rank in front of each line they write. If one fails, the others
// are stopped. In an elastic gang the first node keeps answering at the barrier, so that a member
// that replaces a lost one finds that the others have begun, and begins too.
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>

#include "base/clock.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/text.h"
#include "client/frame/console.h"
#include "client/frame/server_commands.h"
#include "inside/barrier.h"
#include "inside/gang_shell.h"
#include "process/spawn.h"

namespace billow::client {
namespace {

constexpr OptionSpec rank_options[] = {
    {"procs", 0, "N", "processes on this node (default 1)"},
    {"barrier", 0, "T", "how long to wait for the other nodes (default 2m)"},
};
constexpr Duration stop_grace = seconds(10);
constexpr std::size_t output_bytes_max = 64 << 10;  // longer lines are passed on in pieces
constexpr int last_reads_max = 64;                  // of a process that has ended

std::int64_t variable(const char* name, std::int64_t fallback) {
  const char* text = std::getenv(name);
  return text ? parse_int(text, 0, INT32_MAX).value_or(fallback) : fallback;
}
std::string text_variable(const char* name) {
  const char* text = std::getenv(name);
  return text ? text : "";
}

struct Process {
  process::Child child;
  std::int64_t rank = 0;
  Fd out, err;
  std::string out_line, err_line;
  bool running = true;
};

std::atomic<int> rank_signal{0};
extern "C" void on_signal(int number) {
  rank_signal = number;
}

void pass_on(std::string& line, std::int64_t rank, int to, bool end) {
  std::string text;
  std::size_t from = 0;
  for (auto at = line.find('\n'); at != std::string::npos; at = line.find('\n', from)) {
    text += fmt::format("[{}] ", rank) + line.substr(from, at - from + 1);
    from = at + 1;
  }
  line.erase(0, from);
  if (!line.empty() && (end || line.size() > output_bytes_max)) {
    text += fmt::format("[{}] ", rank) + line + "\n";
    line.clear();
  }
  if (!text.empty())
    (void)write_all(to, text);
}

// False: the stream has ended.
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
  process::Pipe out = BILLOW_TRY(process::Pipe::create()),
                err = BILLOW_TRY(process::Pipe::create());
  process::Spawn request;
  request.argv = command;
  request.env =
      process::our_environment({fmt::format("RANK={}", rank), fmt::format("LOCAL_RANK={}", local)});
  request.in = has_input ? process::inherited : process::null_device;
  request.out = out.write.get();
  request.err = err.write.get();
  request.on_parent_death = SIGKILL;
  // A signal to our group must reach each process once, and it does through us.
  request.group = process::Group::own;
  Process made;
  made.child = BILLOW_TRY(process::spawn(request));
  made.rank = rank;
  made.out = std::move(out.read);
  made.err = std::move(err.read);
  return made;
}

// The processes of this node while they run.
class Ranks {
 public:
  // `latecomers`: where members that replace lost ones knock; may be empty.
  Ranks(const Barrier& barrier, Fd latecomers)
      : barrier_(barrier), latecomers_(std::move(latecomers)) {}

  int run(const std::vector<std::string>& command, std::int64_t procs) {
    for (std::int64_t i = 0; i < procs; ++i) {
      const std::int64_t rank = barrier_.rank * procs + i;
      auto made = start(command, rank, i, rank == 0);
      if (!made) {
        (void)write_all(2, fmt::format("[{}] {}\n", rank, made.error().message));
        return made.error().code == Code::not_found ? 127 : 126;
      }
      all_.push_back(std::move(*made));
    }
    for (int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2}) {
      struct sigaction action {};
      action.sa_handler = on_signal;
      ::sigaction(number, &action, nullptr);
    }
    // A process that a rank left behind may hold its pipes open, so only the ranks themselves
    // count.
    while (std::any_of(all_.begin(), all_.end(), [](const Process& p) { return p.running; })) {
      if (const int number = rank_signal.exchange(0))
        signal_all(number);
      if (kill_at_.ns && system_clock().steady() > kill_at_) {
        signal_all(SIGKILL);
        kill_at_ = {};
      }
      pass_output();
      for (Process& p : all_)
        if (p.running)
          if (const auto ended = p.child.poll())
            note_end(p, *ended);
    }
    return code_;
  }

 private:
  void signal_all(int number) {
    for (const Process& p : all_)
      if (p.running)
        p.child.signal(number);
  }

  void pass_output() {
    std::vector<pollfd> fds;
    std::vector<std::pair<Process*, bool>> streams;
    for (Process& p : all_)
      for (const bool out : {true, false})
        if (const Fd& fd = out ? p.out : p.err) {
          fds.push_back({fd.get(), POLLIN, 0});
          streams.emplace_back(&p, out);
        }
    if (latecomers_)
      fds.push_back({latecomers_.get(), POLLIN, 0});
    ::poll(fds.data(), fds.size(), 100);
    if (latecomers_ && fds.back().revents & POLLIN)
      admit_latecomer(barrier_, latecomers_);
    for (std::size_t i = 0; i < streams.size(); ++i) {
      if (!(fds[i].revents & (POLLIN | POLLHUP | POLLERR)))
        continue;
      auto [p, out] = streams[i];
      drain(out ? p->out : p->err, out ? p->out_line : p->err_line, p->rank, out ? 1 : 2);
    }
  }

  static void pass_rest(Fd& from, std::string& line, std::int64_t rank, int to) {
    for (int left = last_reads_max; left > 0 && from && readable(from.get(), 0); --left)
      if (!drain(from, line, rank, to))
        break;
    pass_on(line, rank, to, true);
  }

  void note_end(Process& p, const process::Ended& ended) {
    p.running = false;
    pass_rest(p.out, p.out_line, p.rank, 1);
    pass_rest(p.err, p.err_line, p.rank, 2);
    if (ended.code() == 0 || code_ != 0)
      return;
    code_ = ended.code();
    kill_at_ = system_clock().steady() + stop_grace;
    if (all_.size() > 1)
      (void)write_all(2, fmt::format("billow: rank {} exited with code {}; the other processes of "
                                     "this node are stopped\n",
                                     p.rank, code_));
    signal_all(SIGTERM);
  }

  const Barrier& barrier_;
  Fd latecomers_;
  std::vector<Process> all_;
  int code_ = 0;        // of the first that failed
  SteadyTime kill_at_;  // when those that were stopped are killed
};

int cmd_ranks(const Parsed& parsed) {
  if (parsed.operands.empty())
    return report_usage({Code::invalid, "no command", "billow ranks --procs 8 -- python train.py"});
  const auto procs = parse_int(parsed.get("procs", "1"), 1, limits::procs_per_node_max);
  if (!procs)
    return report_usage(Error(procs.error()).in("--procs"));
  const auto patience = parse_duration(parsed.get("barrier", "2m"));
  if (!patience)
    return report_usage(Error(patience.error()).in("--barrier"));
  Barrier m;
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
  return Ranks(m, std::move(met)).run(parsed.operands, *procs);
}

}  // namespace

void add_rank_commands(CommandTable& table) {
  table.push_back(
      {.name = "ranks",
       .summary = "start the processes of one node of a gang (Billow puts it in front of "
                  "the command of jobs with --nodes or --procs)",
       .example = "billow ranks --procs 8 -- python train.py",
       .run = cmd_ranks,
       .usage = "[--] COMMAND [ARG…]",
       .details = "Waits for the other nodes (NNODES, NODE_RANK, MASTER_ADDR, MASTER_PORT), "
                  "sets RANK and LOCAL_RANK of each process, and puts [RANK] in front\n"
                  "of each line it writes.",
       .options = {rank_options},
       .operands = Operands::command,
       .group = internal_group,
       .talks_to_head = false,
       .prints_json = false});
}

}  // namespace billow::client
