#include "pool/slurm_pool.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/limits.h"
#include "base/log.h"
#include "base/text.h"
#include "pool/kinds.h"
#include "process/command.h"

namespace billow::pool {
namespace {

constexpr Duration slurm_timeout = seconds(60);
constexpr Duration quick_patience = seconds(10);  // until the script runs; prologs can be slow
constexpr Duration node_size_kept = minutes(5);
constexpr std::size_t quick_max = 64;  // each srun is a process beside the head

// The tools print one of these if the controller cannot be reached; every other error is a refusal.
bool controller_away(const std::string& text) {
  for (const char* sign :
       {"Unable to contact", "Connection refused", "Connection timed out", "Socket timed out",
        "Zero Bytes were transmitted", "in standby mode", "Communication connection failure"})
    if (text.find(sign) != std::string::npos)
      return true;
  return false;
}

std::string cpus_argument(std::int64_t milli) {
  return fmt::format("--cpus-per-task={}", (milli + 999) / 1000);
}

std::unexpected<Error> failed(const char* tool, const process::CommandResult& done) {
  return fail(controller_away(done.err) ? Code::unavailable : Code::exhausted,
              fmt::format("{}: {}", tool, done.complaint()));
}

}  // namespace

NodeSize largest_node(const std::string& sinfo) {
  NodeSize out = {.cpus = 0, .mem_mib = 0};
  for (const std::string& line : split(sinfo, '\n')) {
    const auto parts = split(line, '|');
    if (parts.size() != 2)
      continue;
    // A group of nodes that differ is written as "16+": its smallest.
    const auto number = [](std::string_view text) {
      text = trim(text);
      if (text.ends_with('+'))
        text.remove_suffix(1);
      return parse_int(text, 1, NodeSize{}.mem_mib).value_or(0);
    };
    out.cpus = std::max(out.cpus, number(parts[0]));
    out.mem_mib = std::max(out.mem_mib, number(parts[1]));
  }
  if (out.cpus == 0)
    return {};
  // Slurm says 1 MiB if the administrator has not said how much there is: it does not count memory.
  return {.cpus = out.cpus, .mem_mib = out.mem_mib > 1 ? out.mem_mib : 0};
}

bool SlurmPool::has_option(std::string_view prefix) const {
  return std::any_of(settings_.sbatch_args.begin(), settings_.sbatch_args.end(),
                     [&](const std::string& word) { return word.starts_with(prefix); });
}

std::vector<std::string> SlurmPool::arguments(const Order& order) const {
  const Machine& m = order.machine;
  std::vector<std::string> args = {"sbatch",
                                   "--parsable",
                                   "--job-name=" + job_name(m.name),
                                   "--partition=" + settings_.partition,
                                   fmt::format("--nodes={}", m.nodes),
                                   "--ntasks-per-node=1",
                                   "--no-requeue",
                                   "--export=ALL",
                                   "--output=/dev/null",
                                   "--error=/dev/null",
                                   "--chdir=/"};
  if (m.gpus > 0)
    args.push_back(fmt::format("--gres={}:{}", settings_.gres, m.gpus));
  // Slurm takes either number of CPUs, not both: the administrator's wins.
  if (m.cpu_milli > 1000 && !has_option("--cpus-per-"))
    args.push_back(cpus_argument(m.cpu_milli));
  if (m.mem_mib > 0 && !has_option("--mem"))
    args.push_back(fmt::format("--mem={}M", m.mem_mib));
  if (settings_.time.ns > 0)
    args.push_back(
        fmt::format("--time={}", (settings_.time.ns + minutes(1).ns - 1) / minutes(1).ns));
  args.insert(args.end(), settings_.sbatch_args.begin(), settings_.sbatch_args.end());
  return args;
}

std::vector<std::string> SlurmPool::quick_arguments(const Order& order) const {
  std::vector<std::string> args = {"srun", "--immediate=1", "--kill-on-bad-exit=0", "--wait=0",
                                   "--mpi=none"};
  for (const std::string& word : arguments(order))
    if (word != "sbatch" && word != "--parsable" && word != "--no-requeue" &&
        !word.starts_with("--output=") && !word.starts_with("--error="))
      args.push_back(word);
  args.insert(args.end(), {"/bin/sh", "-c", "eval \"$(cat)\""});  // no secret is an argument
  return args;
}

std::string SlurmPool::script(const Order& order) const {
  if (order.machine.nodes <= 1)
    return "#!/bin/sh\n" + node_script(order);
  // A step does not take the number of CPUs over from its allocation (since Slurm 22.05).
  const std::int64_t cpus = order.machine.cpu_milli;
  return fmt::format(
      "#!/bin/sh\nexec srun --ntasks={} --ntasks-per-node=1{} --kill-on-bad-exit=0 /bin/sh -c {}\n",
      order.machine.nodes,
      cpus > 1000 && !has_option("--cpus-per-") ? " " + cpus_argument(cpus) : "",
      shell_quote(node_script(order)));
}

std::string SlurmPool::node_script(const Order& order) const {
  const Machine& m = order.machine;
  std::string join =
      "\"$billow\" join " + shell_quote(order.head_url) +
      " --token-file \"$dir/token\" --data \"$dir/data\" --in-allocation --only-gpus \"" +
      (m.gpus > 0 ? std::string("${CUDA_VISIBLE_DEVICES:-none}") : std::string("none")) + "\"";
  if (order.head_url.find("http://") != std::string::npos)
    join += " --insecure";
  for (const auto& [key, value] : settings_.labels)
    join += " --label " + shell_quote(key + "=" + value);
  join += " --label " + shell_quote("pool=" + settings_.name) +
          " --label slurm-job=\"$SLURM_JOB_ID\" --label slurm-node=\"$SLURMD_NODENAME\"";
  if (settings_.spot)
    join += " --reclaim-notices auto";
  if (!settings_.sim.empty())
    join += " --sim " + shell_quote(settings_.sim);
  join += m.nodes > 1 ? " --node-name " + shell_quote(m.name) + ".\"$SLURM_PROCID\""
                      : " --node-name " + shell_quote(m.name);
  // Each node gets a directory that is deleted with the allocation, and the join token in a file. A
  // script that is killed cannot delete it, so the next one on the node does: its lock is free.
  return fmt::format(
      "umask 077\n"
      "dir=\n"
      "trap 'exit 143' TERM INT HUP\n"
      "trap '[ -z \"$dir\" ] || rm -rf \"$dir\"' EXIT\n"
      "for old in \"${{TMPDIR:-/tmp}}\"/billow-*.??????; do\n"
      "  [ -O \"$old\" ] && [ ! -L \"$old\" ] && [ -e \"$old/alive\" ] || continue\n"
      "  flock -n \"$old/alive\" rm -rf \"$old\" 2>/dev/null || true\n"
      "done\n"
      "dir=$(mktemp -d \"${{TMPDIR:-/tmp}}/billow-{}.XXXXXX\") || exit 1\n"
      "exec 9> \"$dir/new\"\n"
      "flock -n 9 || true\n"
      "mv \"$dir/new\" \"$dir/alive\"\n"
      "printf '%s\\n' {} > \"$dir/token\"\n"
      "billow={}\n"
      "[ -x \"$billow\" ] || billow=billow\n"
      "{} > \"$dir/log\" 2>&1 &\n"
      "agent=$!\n"
      "trap 'kill -TERM \"$agent\" 2>/dev/null' TERM INT\n"
      "wait \"$agent\"; code=$?\n"
      "while kill -0 \"$agent\" 2>/dev/null; do wait \"$agent\"; code=$?; done\n"
      "exit \"$code\"\n",
      m.name, shell_quote(order.token), shell_quote(options_.billow), join);
}

// True if the allocation has begun. Otherwise sbatch is tried, which explains refusals.
bool SlurmPool::start_at_once(const Order& order) {
  const char* way = std::getenv("BILLOW_SLURM_START");
  if (way && std::string_view(way) == "sbatch")
    return false;
  if (auto quick = quick_.lock(); quick->refused || quick->running.size() >= quick_max)
    return false;
  const std::string complaints = fmt::format("{}/{}.srun", options_.work_dir, order.machine.name);
  auto started =
      process::start_command({.argv = quick_arguments(order),
                              .input = "echo here\nexec >/dev/null 2>&1\n" + node_script(order),
                              .complaints = complaints,
                              .patience = quick_patience});
  if (!started) {
    log_warn("pool {}: {}; using sbatch from now on", settings_.name, started.error().message);
    quick_.lock()->refused = true;
  }
  if (started && started->pid > 0)
    quick_.lock()->running.insert(started->pid);
  ::unlink(complaints.c_str());
  return started && started->pid > 0;
}

void SlurmPool::reap() {
  std::erase_if(quick_.lock()->running,
                [](int pid) { return ::waitpid(pid, nullptr, WNOHANG) != 0; });
}

// Several jobs together may need more than a node has; Slurm would refuse such an order as a whole.
Order SlurmPool::cut_to_node(Order order) {
  const SteadyTime now = system_clock().steady();
  bool old = false;
  if (auto nodes = nodes_.lock(); !nodes->looked_at || now - *nodes->looked_at > node_size_kept) {
    nodes->looked_at = now;
    old = true;
  }
  if (old) {
    const auto done =
        process::run_command({.argv = {"sinfo", "--noheader", "--exact",
                                       "--partition=" + settings_.partition, "--format=%c|%m"},
                              .env = {},
                              .input = {},
                              .timeout = slurm_timeout});
    if (done && done->code == 0)
      nodes_.lock()->largest = largest_node(done->out);
  }
  const NodeSize largest = nodes_.lock()->largest;
  order.machine.cpu_milli = std::min(order.machine.cpu_milli, largest.cpus * 1000);
  order.machine.mem_mib = std::min(order.machine.mem_mib, largest.mem_mib);
  return order;
}

Ordered SlurmPool::want(const Order& wanted) {
  const Order order = cut_to_node(wanted);
  if (start_at_once(order))
    return {};
  auto done = process::run_command(
      {.argv = arguments(order), .env = {}, .input = script(order), .timeout = slurm_timeout});
  if (!done)
    return refusal(done.error());
  if (done->code != 0)
    return refusal(failed("sbatch", *done).error());
  return {};
}

std::vector<MachineSighting> SlurmPool::read_list(const std::string& text) const {
  std::vector<MachineSighting> out;
  const std::string prefix = job_name("");
  for (const std::string& line : split(text, '\n')) {
    // Name, number, state, reason, end, begin. Other users' job names may contain a '|', ours never
    // do.
    const auto parts = split(line, '|');
    if (parts.size() != 6 || !parts[0].starts_with(prefix))
      continue;
    MachineSighting seen;
    seen.name = parts[0].substr(prefix.size());
    if (!named_after(seen.name, settings_.name))
      continue;
    seen.external = parts[1];
    seen.starting = parts[2] == "PENDING" || parts[2] == "CONFIGURING";
    seen.note = parts[3] == "None" || parts[3].empty() ? parts[2]
                                                       : fmt::format("{} ({})", parts[2], parts[3]);
    // Of one that waits they are estimates.
    const auto time = [&](const std::string& text) {
      const auto at = parse_int(text, 1, INT64_MAX / 1'000'000'000);
      return at && parts[2] == "RUNNING" ? WallTime{*at * 1'000'000'000} : WallTime{};
    };
    seen.ends_at = time(parts[4]);
    seen.billed_from = time(parts[5]);
    out.push_back(std::move(seen));
  }
  return out;
}

Result<std::vector<MachineSighting>> SlurmPool::nodes() {
  reap();
  auto done = process::run_command(
      {.argv =
           {"squeue", "--noheader", "--all", fmt::format("--user={}", ::geteuid()),
            "--states=PENDING,CONFIGURING,RUNNING,COMPLETING,SUSPENDED,STOPPED,REQUEUED,RESIZING",
            "--format=%j|%A|%T|%r|%e|%S"},
       .env = {{"SLURM_TIME_FORMAT", "%s"}},
       .input = {},
       .timeout = slurm_timeout});
  if (!done)
    return pass(done.error());
  if (done->code != 0)
    return fail(Code::unavailable, fmt::format("squeue: {}", done->complaint()));
  if (done->cut)  // a machine that is missing from a list counts as ended
    return fail(Code::unavailable, fmt::format("squeue printed more than {} MiB",
                                               limits::pool_command_output_bytes_max >> 20));
  return read_list(done->out);
}

Status SlurmPool::release(const MachineSighting& machine) {
  auto done = process::run_command(
      {.argv = {"scancel", machine.external}, .env = {}, .input = {}, .timeout = slurm_timeout});
  if (!done)
    return pass(done.error());
  if (done->code != 0 && done->err.find("Invalid job id") == std::string::npos)
    return fail(Code::unavailable,
                fmt::format("scancel {}: {}", machine.external, done->complaint()));
  return {};
}

// The whole length, not what is added: a head that has been replaced may ask again.
std::vector<std::string> SlurmPool::extend_arguments(const MachineSighting& machine) const {
  const Duration more = parse_duration(settings_.options.at("extend")).value_or(Duration{});
  const std::int64_t whole = (settings_.time + more).ns / minutes(1).ns;
  return {"scontrol", "update", "JobId=" + machine.external, fmt::format("TimeLimit={}", whole)};
}

// Slurm lets operators do it, and nobody beyond the partition's MaxTime.
Status SlurmPool::extend(const MachineSighting& machine) {
  auto done = process::run_command(
      {.argv = extend_arguments(machine), .env = {}, .input = {}, .timeout = slurm_timeout});
  if (!done)
    return pass(done.error());
  if (done->code != 0)
    return pass(failed("scontrol", *done).error());
  return {};
}

namespace {

Status check_slurm_pool(const billow::Pool& settings) {
  if (settings.partition.empty())
    return fail(Code::invalid, "a Slurm pool needs a partition", "add --partition NAME");
  BILLOW_TRY_VOID(check_name("partition", settings.partition));
  if (settings.time.ns != 0 && settings.time < minutes(1))
    return fail(Code::invalid, "--time must be at least 1 min: Slurm counts in minutes");
  if (const auto extend = settings.options.find("extend"); extend != settings.options.end()) {
    const auto more = parse_duration(extend->second);
    if (!more || *more < minutes(1))
      return fail(Code::invalid,
                  fmt::format("extend={} is not a time of at least 1 min", extend->second),
                  "use a form like --option extend=12h");
    if (settings.time.ns == 0)
      return fail(Code::invalid, "extend needs the length of an allocation",
                  "add it, e.g. --time 12h");
  }
  for (const std::string& word : settings.sbatch_args)
    if (!word.starts_with("--"))
      return fail(Code::invalid, fmt::format("\"{}\" is not a long option of sbatch", word),
                  "write it like --sbatch=--account=physics");
  return {};
}

std::unique_ptr<Pool> make_slurm_pool(const billow::Pool& settings, const Options& options) {
  return std::make_unique<SlurmPool>(settings, options);
}

}  // namespace

// An allocation can have any number of GPUs and nodes. squeue shows the controller's state, so an
// allocation that it no longer lists has ended.
const Kind slurm_kind = {
    .name = "slurm",
    .capabilities = {.sizes_to_demand = true, .several_nodes_at_once = true, .list_is_final = true},
    .options = {{"extend",
                 "time by which an allocation is extended once if jobs still run near its end "
                 "(default: none); the head's user needs Slurm's operator rights"}},
    .token_life = hours(24 * 7),  // an allocation may wait long in the queue
    .check = check_slurm_pool,
    .make = make_slurm_pool,
};

}  // namespace billow::pool
