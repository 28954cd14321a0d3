#include "head/sampling.h"

#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "base/limits.h"
#include "base/log.h"
#include "core/control/renting/disk.h"
#include "core/ledger/meter.h"
#include "view/cost.h"
#include "view/idle_jobs.h"

namespace billow::head {
namespace {

constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

double known(std::int64_t value, double factor = 1) {
  return value < 0 ? unknown : static_cast<double>(value) * factor;
}

// Sums of what is known; nothing known stays unknown.
void plus(double& sum, double value) {
  if (std::isnan(value))
    return;
  sum = std::isnan(sum) ? value : sum + value;
}

}  // namespace

Sampling::Sampling(Options options) : options_(std::move(options)) {}
Sampling::~Sampling() {
  *alive_ = false;
}

void Sampling::tick() {
  const WallTime now = options_.clock->wall();
  sample_jobs(now);
  const std::int64_t slot = now.ns / limits::history_step.ns;
  if (slot == last_slot_)
    return;
  last_slot_ = slot;
  sample_gpus(now);
}

void Sampling::look_at_health(NodeId id, const wire::agent_v1::Heartbeat& beat) {
  const auto node = options_.engine->state().nodes.find(id);
  if (node == options_.engine->state().nodes.end())
    return;
  if (beat.disk_free_mib >= 0 &&
      control::disk_changed(options_.engine->state(), node->second, beat.disk_free_mib))
    options_.engine->execute(DiskSeen{id, beat.disk_free_mib}, {"head", ""}, {});
  for (const auto& reading : beat.gpus) {
    if (reading.score >= limits::gpu_drain_score || reading.fault.empty() || !reading.fault_at)
      continue;
    const GpuMark* mark = node->second.mark(reading.gpu);
    if (mark && (!mark->drained.empty() || reading.fault_at <= mark->since))
      continue;
    log_warn("GPU {} of {} is drained: {}", reading.gpu, node->second.offer.name, reading.fault);
    options_.engine->execute(DrainGpu{id, reading.gpu, reading.fault, reading.fault_at},
                             {"head", ""}, {});
  }
}

namespace {

// One sample of a job as it is summed up over its tasks and their GPUs.
struct Sum {
  JobSample sample;
  int util_known = 0, sm_known = 0;  // GPUs whose utilization is averaged

  Sum() { sample.fill(unknown); }

  void add(const wire::agent_v1::GpuReading& r) {
    if (r.lost)
      return;
    if (r.util_pct >= 0) {
      plus(sample[col_gpu_util], r.util_pct * 10.0);
      ++util_known;
    }
    if (r.sm_active_permille >= 0) {
      plus(sample[col_sm_active], r.sm_active_permille);
      ++sm_known;
    }
    plus(sample[col_gpu_mem], known(r.mem_used_mib));
    plus(sample[col_gpu_power], known(r.power_mw, 0.01));
    plus(sample[col_pcie_rx], known(r.pcie_rx_kib_s));
    plus(sample[col_pcie_tx], known(r.pcie_tx_kib_s));
    plus(sample[col_nvlink_rx], known(r.nvlink_rx_kib_s));
    plus(sample[col_nvlink_tx], known(r.nvlink_tx_kib_s));
  }
  void add(const wire::agent_v1::TaskReading& r) {
    plus(sample[col_cpu], known(r.cpu_milli));
    plus(sample[col_mem], known(r.mem_mib));
    plus(sample[col_read], known(r.read_kib_s));
    plus(sample[col_write], known(r.write_kib_s));
  }
  void add(const Task& task, const wire::agent_v1::Heartbeat& beat) {
    if (ledger::gpu_milli(task) == 0 && !task.gpus.empty())
      return;  // suspended: nothing to see
    for (const GpuGrant& grant : task.gpus)
      for (const auto& r : beat.gpus)
        if (r.gpu == grant.gpu)
          add(r);
    for (const auto& r : beat.tasks)
      if (r.task == task.id)
        add(r);
    plus(sample[col_net_rx], known(beat.net_rx_kib_s));
    plus(sample[col_net_tx], known(beat.net_tx_kib_s));
  }
  JobSample averaged() const {
    JobSample out = sample;
    if (util_known)
      out[col_gpu_util] /= util_known;
    if (sm_known)
      out[col_sm_active] /= sm_known;
    return out;
  }
};

}  // namespace

void Sampling::sample_jobs(WallTime now) {
  const control::State& state = options_.engine->state();
  for (auto& [id, live] : jobs_)
    live.seen = false;
  std::unordered_map<JobId, Sum> sums;
  for (const auto& [node, tasks] : state.tasks_on) {
    const auto* beat = options_.readings(node);
    if (!beat)
      continue;
    for (const TaskId id : tasks) {
      const Task& task = state.tasks.at(id);
      sums[task.job].add(task, *beat);
    }
  }
  for (const auto& [id, sum] : sums) {
    Live& live = live_of(state.jobs.at(id), now);
    live.seen = true;
    live.series.add(now, sum.averaged());
  }
  save_due(now);
}

// The job's series in memory. After a restart of the head, what was stored of it is loaded.
Sampling::Live& Sampling::live_of(const Job& job, WallTime now) {
  auto [at, fresh] = jobs_.try_emplace(job.id);
  Live& live = at->second;
  if (!fresh)
    return live;
  const WallTime begin = job.started_at && job.started_at < now ? job.started_at : now;
  live.series = JobSeries(begin);
  live.saved_at = now;
  live.loaded = (now - begin) < seconds(10);  // just started: nothing can be stored
  if (!live.loaded)
    (void)options_.workers->submit(
        [history = options_.history, id = job.id] { return history->job(id); },
        [this, alive = alive_, id = job.id](Result<std::optional<JobSeries>> stored) {
          if (!*alive)
            return;
          const auto found = jobs_.find(id);
          if (found == jobs_.end())
            return;
          if (stored && *stored)
            found->second.series = std::move(**stored);
          found->second.loaded = true;
        });
  return live;
}

// Running jobs are saved from time to time; jobs that have ended are saved, and dropped once the
// history has them.
void Sampling::save_due(WallTime now) {
  std::vector<History::JobRecord> records;
  for (auto& [id, live] : jobs_) {
    const bool gone = !live.seen && !options_.engine->state().find_job(id);
    if (!live.loaded || (!gone && now - live.saved_at < limits::history_save_every))
      continue;
    if (live.saved_at == WallTime{})
      continue;  // its last save is under way
    records.push_back({id, live.series.encode()});
    live.saved_at = gone ? WallTime{} : now;
  }
  if (!records.empty())
    save(std::move(records));
}

void Sampling::save(std::vector<History::JobRecord> records) {
  auto shared = std::make_shared<std::vector<History::JobRecord>>(std::move(records));
  const Status queued = options_.workers->submit(
      [history = options_.history, shared] { return history->save_jobs(*shared); },
      [this, alive = alive_, shared](Status saved) {
        if (!saved)
          log_warn("history: {}", saved.error().message);
        if (!*alive)
          return;
        for (const auto& record : *shared) {
          const auto found = jobs_.find(record.job);
          if (found != jobs_.end() && found->second.saved_at == WallTime{})
            jobs_.erase(found);
        }
      });
  if (queued)
    return;
  for (const auto& record : *shared)  // the workers are busy: try again next time
    if (const auto found = jobs_.find(record.job); found != jobs_.end())
      found->second.saved_at = WallTime{1};
}

namespace {

GpuSampleRow row_of(const wire::agent_v1::GpuReading& r) {
  GpuSampleRow row;
  if (r.lost) {
    row.fill(unknown);
    return row;
  }
  row[gpu_util] = known(r.util_pct, 10);
  row[gpu_sm_active] = known(r.sm_active_permille);
  row[gpu_mem] = known(r.mem_used_mib);
  row[gpu_power] = known(r.power_mw, 0.01);
  row[gpu_temperature] = known(r.temperature_c);
  row[gpu_pcie_rx] = known(r.pcie_rx_kib_s);
  row[gpu_pcie_tx] = known(r.pcie_tx_kib_s);
  row[gpu_nvlink_rx] = known(r.nvlink_rx_kib_s);
  row[gpu_nvlink_tx] = known(r.nvlink_tx_kib_s);
  return row;
}

// What leases hold, cost and waste at this moment.
void add_leases(GpuSampleRow& fleet, const control::State& state, const view::Readings& readings) {
  std::int64_t given = 0, spend_nano = 0, idle_nano = 0;
  for (const auto& [id, task] : state.tasks) {
    if (task.state == TaskState::ended)
      continue;
    given += ledger::gpu_milli(task);
    spend_nano += view::charge_rate_now(state, task);
  }
  for (const auto& [id, job] : view::idle_jobs(state, readings))
    idle_nano += job.nano_usd_per_s;
  const auto milli_usd_per_hour = [](std::int64_t nano_usd_per_s) {
    return static_cast<double>(nano_usd_per_s) * 3600 / 1e6;
  };
  fleet[fleet_given] = static_cast<double>(given);
  fleet[fleet_spend] = milli_usd_per_hour(spend_nano);
  fleet[fleet_idle_spend] = milli_usd_per_hour(idle_nano);
}

void add_job_counts(GpuSampleRow& fleet, const control::State& state) {
  const auto count = [&](JobState s) {
    const auto found = state.count.find(s);
    return found == state.count.end() ? 0.0 : static_cast<double>(found->second);
  };
  fleet[fleet_running] = count(JobState::running);
  fleet[fleet_queued] = count(JobState::queued);
}

}  // namespace

void Sampling::sample_gpus(WallTime now) {
  const control::State& state = options_.engine->state();
  std::vector<History::Sample> samples;
  double util = 0, power = 0;
  int util_known = 0, count = 0;
  for (const auto& [id, node] : state.nodes) {
    count += static_cast<int>(node.offer.gpus.size());
    const auto* beat = options_.readings(id);
    if (!beat)
      continue;
    for (const auto& r : beat->gpus) {
      const auto index = static_cast<std::size_t>(r.gpu);
      if (index >= node.offer.gpus.size())
        continue;
      samples.push_back(
          {fmt::format("{}/{}", node.offer.name, node.offer.gpus[index].uuid), row_of(r)});
      util += std::max(0, r.util_pct);
      util_known += r.util_pct >= 0;
      power += static_cast<double>(r.power_mw) / 1000;
    }
  }
  GpuSampleRow fleet;
  fleet.fill(unknown);
  fleet[fleet_util] = util_known ? util * 10 / util_known : unknown;
  fleet[fleet_gpus] = count;
  fleet[fleet_power] = power;
  add_leases(fleet, state, options_.readings);
  add_job_counts(fleet, state);
  samples.push_back({"fleet", fleet});
  sample_endpoints(now, samples);
  (void)options_.workers->submit(
      [history = options_.history, now, samples = std::move(samples)] {
        return history->add(now, samples);
      },
      [](Status added) {
        if (!added)
          log_warn("history: {}", added.error().message);
      });
}

namespace {

// What an endpoint's replicas are charged, in thousandths of a dollar per hour.
double endpoint_spend_of(const control::State& state, const std::string& name) {
  std::int64_t nano_usd_per_s = 0;
  const auto replicas = state.replicas.find(name);
  if (replicas == state.replicas.end())
    return 0;
  for (const JobId id : replicas->second)
    nano_usd_per_s += view::charge_rate_now(state, state.jobs.at(id));
  return static_cast<double>(nano_usd_per_s) * 3600 / 1e6;
}

}  // namespace

// Gateways count since they started, so a counter that falls begins anew. All that a new endpoint
// has counted by the time a gateway first reports it has happened since the endpoint was made: its
// samples begin with zeros. A row holds what came in its step, however late the sample is, so the
// sums of a series are what the gateways counted.
void Sampling::sample_endpoints(WallTime now, std::vector<History::Sample>& samples) {
  const control::State& state = options_.engine->state();
  std::erase_if(endpoints_,
                [&](const auto& known) { return !state.endpoints.contains(known.first); });
  for (const auto& [name, endpoint] : state.endpoints) {
    GpuSampleRow row;
    row.fill(unknown);
    row[endpoint_spend] = endpoint_spend_of(state, name);
    const auto* f = options_.endpoint_figures ? options_.endpoint_figures(name) : nullptr;
    const bool young = now - endpoint.made_at < limits::history_step * 2;
    const auto seen = endpoints_.find(name);
    if (f || young || seen != endpoints_.end()) {
      Counted counted = seen == endpoints_.end() ? Counted{} : seen->second;
      counted.at = now;
      if (f)
        counted = {now, f->requests, f->failed + f->refused, f->cold_starts + f->wakes};
      const auto at =
          endpoints_.try_emplace(name, young ? Counted{now - limits::history_step} : counted).first;
      const Counted before = std::exchange(at->second, counted);
      const auto since = [](std::uint64_t was, std::uint64_t is) {
        return static_cast<double>(is >= was ? is - was : is) * 1000;
      };
      if (now > before.at) {
        const double step_s = limits::history_step.seconds();
        row[endpoint_requests] = since(before.requests, counted.requests) / step_s;
        row[endpoint_errors] = since(before.errors, counted.errors) / step_s;
        row[endpoint_cold_starts] = since(before.starts, counted.starts);
      }
    }
    if (f) {
      if (f->first_byte_p50_us > 0) {
        row[endpoint_p50] = static_cast<double>(f->first_byte_p50_us) / 100;
        row[endpoint_p95] = static_cast<double>(f->first_byte_p95_us) / 100;
        row[endpoint_p99] = static_cast<double>(f->first_byte_p99_us) / 100;
      }
      row[endpoint_ready] = f->ready * 100.0;
      row[endpoint_sleeping] = f->sleeping * 100.0;
    }
    samples.push_back({"endpoint " + name, row});
  }
}

const JobSeries* Sampling::live_series(JobId job) const {
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? nullptr : &found->second.series;
}

void Sampling::save_all() {
  std::vector<History::JobRecord> records;
  for (const auto& [id, live] : jobs_)
    if (live.loaded)
      records.push_back({id, live.series.encode()});
  if (!records.empty())
    (void)options_.history->save_jobs(records);
}

}  // namespace billow::head
