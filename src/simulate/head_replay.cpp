#include "simulate/head_replay.h"

#include <algorithm>
#include <numeric>
#include <queue>

#include <fmt/format.h>

#include "base/file.h"
#include "base/formats/utc.h"
#include "base/text.h"
#include "core/control/core.h"
#include "simulate/csv.h"
#include "simulate/simulate.h"

namespace billow::control {
namespace {

constexpr WallTime epoch{1'700'000'000'000'000'000};  // the virtual start; only differences matter
WallTime at(double s) {
  return epoch + nanoseconds(static_cast<std::int64_t>(s * 1e9));
}
double since(WallTime t) {
  return (t - epoch).seconds();
}

// A gang of whole GPUs over as many nodes as it needs.
void set_gpus(ReplayJob& job, std::int32_t gpus, std::int32_t per_node) {
  const std::int32_t nodes = gpus <= per_node ? 1 : (gpus + per_node - 1) / per_node;
  job.nodes = static_cast<std::uint32_t>(nodes);
  job.resources.gpus = nodes == 1 ? gpus : per_node;
  job.resources.share = {gpus > 0 ? whole_gpu_milli : 0, 0};
}

Result<std::vector<ReplayJob>> read_openb(const std::string& path) {
  const sched::TraceTable t = BILLOW_TRY(sched::TraceTable::read(path));
  const auto cpu = BILLOW_TRY(t.column("cpu_milli")), mem = BILLOW_TRY(t.column("memory_mib")),
             gpus = BILLOW_TRY(t.column("num_gpu")), milli = BILLOW_TRY(t.column("gpu_milli")),
             types = BILLOW_TRY(t.column("gpu_spec")), made = BILLOW_TRY(t.column("creation_time")),
             gone = BILLOW_TRY(t.column("deletion_time")),
             begun = BILLOW_TRY(t.column("scheduled_time"));
  std::vector<ReplayJob> jobs;
  for (std::size_t r = 0; r < t.rows(); ++r) {
    ReplayJob j;
    j.submit_s = BILLOW_TRY(t.number(r, made));
    const double start = BILLOW_TRY(t.number(r, begun)), end = BILLOW_TRY(t.number(r, gone));
    j.run_s = end - std::max(start, j.submit_s);
    if (j.run_s <= 0)
      continue;  // never ran
    j.resources.gpus = static_cast<std::int32_t>(BILLOW_TRY(t.number(r, gpus)));
    const auto share = static_cast<std::int32_t>(BILLOW_TRY(t.number(r, milli)));
    j.resources.share = {j.resources.gpus > 1 ? whole_gpu_milli : share, 0};
    j.resources.cpu_milli = static_cast<std::int64_t>(BILLOW_TRY(t.number(r, cpu)));
    j.resources.mem_mib = static_cast<std::int64_t>(BILLOW_TRY(t.number(r, mem)));
    for (const std::string& type : split(t.text(r, types), '|'))
      if (!type.empty() && j.resources.gpus > 0)
        j.resources.gpu_types.push_back(type);
    j.what = fmt::format("{}x{}", j.resources.gpus, share);
    jobs.push_back(std::move(j));
  }
  return jobs;
}

// Finished jobs from `billow ps -a --json` (or the API's list of jobs).
Result<std::vector<ReplayJob>> read_history(const std::string& path) {
  const Json document = BILLOW_TRY(parse_json(BILLOW_TRY(read_file(path, std::size_t{1} << 30))));
  const auto& list = document.is_array() ? document.items() : document["jobs"].items();
  const auto moment = [](const Json& text) -> Result<double> {
    if (text.is_null())
      return -1;
    return static_cast<double>(BILLOW_TRY(parse_utc(text.str_or(""))).ns) / 1e9;
  };
  std::vector<ReplayJob> jobs;
  for (const Json& doc : list) {
    ReplayJob j;
    const auto submitted = moment(doc["submitted_at"]), begun_at = moment(doc["started_at"]),
               ended_at = moment(doc["ended_at"]);
    for (const auto* read : {&submitted, &begun_at, &ended_at})
      if (!*read)
        return pass(read->error(), fmt::format("{}: job {}", path, doc["id"].int_or(0)));
    j.submit_s = *submitted;
    const double begun = *begun_at, ended = *ended_at;
    if (j.submit_s < 0 || begun < 0 || ended < begun)
      continue;  // never ran, or still runs
    j.run_s = std::max(ended - begun, 0.5);
    j.resources.gpus = static_cast<std::int32_t>(doc["gpus"].int_or(0));
    const std::int64_t milli = doc["gpu_milli"].int_or(0);
    j.resources.share = {j.resources.gpus > 1 ? whole_gpu_milli
                                              : static_cast<std::int32_t>(std::clamp<std::int64_t>(
                                                    milli, 0, whole_gpu_milli)),
                         doc["gpu_mem_mib"].int_or(0)};
    for (const Json& type : doc["gpu_types"].items())
      j.resources.gpu_types.emplace_back(type.str_or(""));
    j.resources.cpu_milli = doc["cpu_milli"].int_or(0);
    j.resources.mem_mib = doc["mem_mib"].int_or(0);
    j.nodes = static_cast<std::uint32_t>(std::max<std::int64_t>(1, doc["nodes"].int_or(1)));
    j.priority = static_cast<std::int32_t>(doc["priority"].int_or(0));
    j.spot = doc["spot"].bool_or(false);
    j.what = std::string(doc["command"].str_or("job"));
    j.project = std::string(doc["project"].str_or(""));
    j.user = std::string(doc["user"].str_or(""));
    jobs.push_back(std::move(j));
  }
  if (jobs.empty())
    return fail(Code::invalid, path + " contains no job that ran and ended",
                "create it with: billow ps -a --json > history.json");
  return jobs;
}

double quantile(std::vector<double>& sorted, double q) {
  return sorted.empty()
             ? 0
             : sorted[static_cast<std::size_t>(q * static_cast<double>(sorted.size() - 1))];
}

class Replay {
 public:
  Replay(const std::vector<NodeOffer>& fleet,
         const std::vector<ReplayJob>& jobs,
         const ReplayOptions& options)
      : fleet_(fleet),
        jobs_(jobs),
        options_(options),
        core_(State{}, ledger::PriceBook::market()) {}

  Result<ReplayResult> run() {
    BILLOW_TRY_VOID(prepare());
    std::size_t next = 0;
    while (next < arrivals_.size() || !ends_.empty() || core_.state().index.queued_count() > 0) {
      double t = next < arrivals_.size() ? jobs_[arrivals_[next]].submit_s : forever;
      if (!ends_.empty())
        t = std::min(t, ends_.top().first);
      if (const WallTime wake = core_.wake_at();
          wake && since(wake) > now_s_ &&
          !(next >= arrivals_.size() && ends_.empty() && stuck_ > 64))
        t = std::min(t, since(wake));
      if (t >= forever)
        break;  // the remaining jobs wait for something that never comes
      stuck_ = t > now_s_ && ends_.empty() && next >= arrivals_.size() ? stuck_ + 1 : 0;
      account(t);
      now_s_ = t;
      while (!ends_.empty() && ends_.top().first <= t)
        end_task();
      while (next < arrivals_.size() && jobs_[arrivals_[next]].submit_s <= t)
        BILLOW_TRY_VOID(submit(arrivals_[next++]));
      take(BILLOW_TRY(core_.execute(Tick{}, head_, at(now_s_))));
      do
        take(core_.plan(at(now_s_)));
      while (core_.more());
      note();
    }
    return summary();
  }

 private:
  static constexpr double forever = 1e15;

  Status prepare() {
    take(BILLOW_TRY(core_.execute(StartHead{.version = "replay",
                                            .epoch = 1,
                                            .admin = "replay",
                                            .admin_token_hash = "-",
                                            .node_token_hash = ""},
                                  head_, at(0))));
    for (const NodeOffer& offer : fleet_) {
      take(BILLOW_TRY(core_.execute(AgentHello{offer, {}}, head_, at(0))));
      gpus_ += static_cast<double>(offer.gpus.size());
    }
    arrivals_.resize(jobs_.size());
    std::iota(arrivals_.begin(), arrivals_.end(), std::size_t{0});
    std::ranges::stable_sort(arrivals_, {}, [&](std::size_t i) { return jobs_[i].submit_s; });
    first_s_ = jobs_.empty() ? 0 : jobs_[arrivals_.front()].submit_s;
    now_s_ = last_s_ = first_s_;
    std::set<std::string> projects{"default"}, users{"replay"};
    for (const ReplayJob& j : jobs_) {
      if (!j.project.empty() && projects.insert(j.project).second)
        take(BILLOW_TRY(core_.execute(AddProject{j.project, 100}, head_, at(0))));
      // The head that recorded the jobs has checked who may use which priority.
      if (!j.user.empty() && users.insert(j.user).second)
        take(BILLOW_TRY(core_.execute(AddUser{j.user, "nobody", roles::admin}, head_, at(0))));
    }
    for (const std::string& name : projects)
      take(BILLOW_TRY(
          core_.execute(SetProject{.name = name, .policy = options_.policy}, head_, at(0))));
    return {};
  }

  Status submit(std::size_t i) {
    const ReplayJob& j = jobs_[i];
    SubmitJob command;
    command.spec.argv = {j.what.empty() ? "job" : j.what};
    command.spec.resources = j.resources;
    command.spec.nodes = j.nodes;
    command.spec.priority = j.priority;
    command.spec.spot = j.spot;
    command.spec.suspendable = Suspendable::no;
    if (options_.durations_known)
      command.spec.time_limit = nanoseconds(static_cast<std::int64_t>(j.run_s * 1e9) + 1'000'000);
    command.project = j.project.empty() ? "default" : j.project;
    const User* user = core_.state().user_by_name(j.user.empty() ? "replay" : j.user);
    command.user = user->id;
    const JobId id(core_.state().next_job);
    auto step = core_.execute(command, head_, at(now_s_));
    if (!step) {
      if (step.error().code != Code::infeasible)
        return pass(step.error());
      ++result_.refused;
      return {};
    }
    of_[id] = i;
    waiting_milli_ += asked(j);
    take(std::move(*step));
    return {};
  }
  static double asked(const ReplayJob& j) {
    return static_cast<double>(j.nodes) * j.resources.gpus *
           (j.resources.gpus > 1 ? 1000.0 : j.resources.share.milli) / 1000.0;
  }

  // Simulates the agents: a started task ends after its run time; a stopped one ends at once.
  void take(Step step) {
    for (const Event& event : step.events) {
      if (const auto* placed = get_if<JobPlaced>(&event.body)) {
        const ReplayJob& j = jobs_[of_.at(placed->job)];
        const double end = now_s_ + std::max(j.run_s, 0.001);
        for (const Task& t : placed->tasks)
          ends_.emplace(end, t.id);
        if (begun_.try_emplace(placed->job, now_s_).second)
          waits_.push_back(now_s_ - j.submit_s);
        waiting_milli_ -= asked(j);
        used_ += asked(j);
      } else if (const auto* requeued = get_if<JobRequeued>(&event.body)) {
        const ReplayJob& j = jobs_[of_.at(requeued->job)];
        ++result_.preemptions;
        waiting_milli_ += asked(j);
        used_ -= asked(j);
      } else if (const auto* ended = get_if<JobEnded>(&event.body)) {
        const ReplayJob& j = jobs_[of_.at(ended->job)];
        used_ -= asked(j);
        const double jct = now_s_ - j.submit_s;
        jcts_.push_back(jct);
        result_.slowdown_max = std::max(result_.slowdown_max, jct / std::max(j.run_s, 1.0));
        last_end_s_ = now_s_;
      } else if (const auto* task = get_if<TaskEnded>(&event.body)) {
        result_.cost_usd += static_cast<double>(task->cost.value) / 1e9;
      }
    }
    for (const Effect& effect : step.effects)
      if (const auto* stop = get_if<wire::agent_v1::Stop>(&effect.message))
        stopping_.push_back(stop->task);
    while (!stopping_.empty()) {
      const TaskId id = stopping_.back();
      stopping_.pop_back();
      report(id, {.kind = ExitKind::stopped});
    }
  }
  void end_task() {
    const TaskId id = ends_.top().second;
    ends_.pop();
    report(id, {});
  }
  void report(TaskId id, ExitStatus exit) {
    const Task* task = core_.state().find_task(id);
    if (!task || task->state == TaskState::ended)
      return;
    auto step = core_.execute(AgentReport{task->node,
                                          {.task = id,
                                           .state = TaskState::ended,
                                           .started_at = task->lease_from,
                                           .ended_at = at(now_s_),
                                           .exit = std::move(exit)}},
                              head_, at(now_s_));
    if (step)
      take(std::move(*step));
  }

  void account(double t) {
    const double span = t - last_s_;
    busy_s_ += used_ * span;
    if (waiting_milli_ > 1e-9)
      idle_while_waiting_s_ += std::max(0.0, gpus_ - used_) * span;
    last_s_ = t;
  }
  void note() {
    if (result_.use.empty() || result_.use.back().second != used_)
      result_.use.emplace_back(now_s_ - first_s_, used_);
    if (result_.waiting.empty() || result_.waiting.back().second != waiting_milli_)
      result_.waiting.emplace_back(now_s_ - first_s_, waiting_milli_);
  }

  ReplayResult summary() {
    result_.jobs = static_cast<std::int64_t>(jcts_.size());
    std::ranges::sort(jcts_);
    std::ranges::sort(waits_);
    const auto mean = [](const std::vector<double>& v) {
      return v.empty() ? 0.0
                       : std::accumulate(v.begin(), v.end(), 0.0) / static_cast<double>(v.size());
    };
    result_.jct_avg_s = mean(jcts_);
    result_.jct_p50_s = quantile(jcts_, 0.5);
    result_.jct_p99_s = quantile(jcts_, 0.99);
    result_.wait_avg_s = mean(waits_);
    result_.wait_p50_s = quantile(waits_, 0.5);
    result_.wait_p99_s = quantile(waits_, 0.99);
    result_.wait_max_s = waits_.empty() ? 0 : waits_.back();
    result_.makespan_s = std::max(0.0, last_end_s_ - first_s_);
    const double all = gpus_ * result_.makespan_s;
    if (all > 0) {
      result_.gpu_use_pct = 100.0 * busy_s_ / all;
      result_.fragmentation_pct = 100.0 * idle_while_waiting_s_ / all;
    }
    for (const NodeOffer& offer : fleet_)
      for (const NodeGpu& gpu : offer.gpus)
        result_.fleet_usd +=
            static_cast<double>(
                core_.prices().rate(gpu.type, PriceClass::on_demand).nano_usd_per_s) /
            1e9 * result_.makespan_s;
    return std::move(result_);
  }

  const std::vector<NodeOffer>& fleet_;
  const std::vector<ReplayJob>& jobs_;
  ReplayOptions options_;
  Core core_;
  Cause head_{"head", ""};
  std::vector<std::size_t> arrivals_;
  std::priority_queue<std::pair<double, TaskId>,
                      std::vector<std::pair<double, TaskId>>,
                      std::greater<>>
      ends_;
  std::unordered_map<JobId, std::size_t> of_;
  std::unordered_map<JobId, double> begun_;
  std::vector<TaskId> stopping_;
  std::vector<double> jcts_, waits_;
  double gpus_ = 0, used_ = 0, waiting_milli_ = 0, now_s_ = 0, last_s_ = 0, first_s_ = 0,
         last_end_s_ = 0, busy_s_ = 0, idle_while_waiting_s_ = 0;
  int stuck_ = 0;
  ReplayResult result_;
};

}  // namespace

Result<std::vector<ReplayJob>> read_replay(const std::string& path,
                                           const std::string& format,
                                           std::int32_t per_node) {
  if (format == "openb")
    return read_openb(path);
  if (format == "history")
    return read_history(path);
  if (format != "muri" && format != "philly")
    return fail(Code::invalid, fmt::format("unknown format \"{}\"", format),
                "choose one of openb, muri, philly, history");
  const auto trace =
      BILLOW_TRY(format == "muri" ? sched::read_muri(path) : sched::read_philly(path));
  std::vector<ReplayJob> jobs;
  for (const sched::TraceJob& j : trace) {
    ReplayJob out;
    out.submit_s = j.submit_s;
    out.run_s = j.service_s;
    out.what = j.model.empty() ? "job" : fmt::format("{} on {}", j.model, j.gpus);
    set_gpus(out, j.gpus, std::max(1, per_node));
    jobs.push_back(std::move(out));
  }
  return jobs;
}

Result<std::vector<NodeOffer>> read_fleet(const std::string& text) {
  std::vector<NodeOffer> fleet;
  const auto add = [&](std::string name, std::int64_t gpus, const std::string& type,
                       std::int64_t cpu_milli, std::int64_t mem_mib) {
    NodeOffer o;
    o.name = std::move(name);
    o.boot_id = "-";
    o.cpu_milli = cpu_milli;
    o.mem_mib = mem_mib;
    for (std::int64_t i = 0; i < gpus; ++i) {
      NodeGpu g;
      g.index = static_cast<std::int32_t>(i);
      g.type = type;
      g.mem_mib = 81920;
      g.nvlink_domain = 0;
      o.gpus.push_back(std::move(g));
    }
    fleet.push_back(std::move(o));
  };
  if (text.ends_with(".csv")) {
    for (const sched::OpenbNode& n : BILLOW_TRY(sched::read_openb_nodes(text)))
      add(n.name, n.gpus, n.type, n.cpu_milli, n.mem_mib);
    return fleet;
  }
  for (const std::string& group : split(text, ',')) {
    const auto parts = split(trim(group), 'x');
    const auto nodes = parts.size() == 3 ? parse_int(parts[0], 1, 100'000)
                                         : Result<std::int64_t>(fail(Code::invalid, ""));
    const auto gpus = parts.size() == 3 ? parse_int(parts[1], 0, 64)
                                        : Result<std::int64_t>(fail(Code::invalid, ""));
    if (!nodes || !gpus || parts[2].empty())
      return fail(Code::invalid, fmt::format("--fleet {} is not valid", group),
                  "use NODESxGPUSxTYPE, e.g. 8x8xH100,2x4xL4, or a CSV file of nodes");
    for (std::int64_t n = 0; n < *nodes; ++n)
      add(fmt::format("node-{}", fleet.size() + 1), *gpus, parts[2], 128'000, 1 << 20);
  }
  return fleet;
}

Result<ReplayResult> replay(const std::vector<NodeOffer>& fleet,
                            const std::vector<ReplayJob>& jobs,
                            const ReplayOptions& options) {
  return Replay(fleet, jobs, options).run();
}

Json replay_document(const ReplayResult& r) {
  const auto round = [](double x) {
    return static_cast<double>(std::llround(x * 100.0)) / 100.0;
  };
  return Json::object({{"jobs", r.jobs},
                       {"refused", r.refused},
                       {"jct_avg_s", round(r.jct_avg_s)},
                       {"jct_p50_s", round(r.jct_p50_s)},
                       {"jct_p99_s", round(r.jct_p99_s)},
                       {"wait_avg_s", round(r.wait_avg_s)},
                       {"wait_p50_s", round(r.wait_p50_s)},
                       {"wait_p99_s", round(r.wait_p99_s)},
                       {"wait_max_s", round(r.wait_max_s)},
                       {"slowdown_max", round(r.slowdown_max)},
                       {"makespan_s", round(r.makespan_s)},
                       {"gpu_use_pct", round(r.gpu_use_pct)},
                       {"fragmentation_pct", round(r.fragmentation_pct)},
                       {"cost_usd", round(r.cost_usd)},
                       {"fleet_usd", round(r.fleet_usd)},
                       {"preemptions", r.preemptions}});
}

std::string replay_svg(const ReplayResult& r, double gpus, const std::string& title) {
  return sched::plot_svg(r.use, gpus, title, "time", "GPUs", r.waiting);
}

}  // namespace billow::control
