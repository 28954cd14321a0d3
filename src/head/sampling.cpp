#include "head/sampling.h"

#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "api/idle_now.h"
#include "base/limits.h"
#include "base/log.h"
#include "core/ledger/meter.h"
#include "head/agents.h"

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

Sampling::Sampling(Options options) : options_(options) {}
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

void Sampling::sample_jobs(WallTime now) {
  const control::State& state = options_.engine->state();
  for (auto& [id, live] : jobs_)
    live.seen = false;
  std::unordered_map<JobId, JobSample> samples;
  std::unordered_map<JobId, int> gpus_seen, sm_seen;
  for (const auto& [node_id, tasks] : state.tasks_on) {
    const auto* beat = options_.agents->readings(node_id);
    if (!beat)
      continue;
    for (TaskId task_id : tasks) {
      const Task& task = state.tasks.at(task_id);
      auto [at, fresh] = samples.try_emplace(task.job);
      JobSample& sample = at->second;
      if (fresh)
        sample.fill(unknown);
      if (ledger::gpu_milli(task) == 0 && !task.gpus.empty())
        continue;  // suspended: nothing to see
      for (const GpuGrant& grant : task.gpus) {
        for (const auto& r : beat->gpus) {
          if (r.gpu != grant.gpu)
            continue;
          if (r.util_pct >= 0)
            plus(sample[col_gpu_util], r.util_pct * 10.0), ++gpus_seen[task.job];
          if (r.sm_active_permille >= 0)
            plus(sample[col_sm_active], r.sm_active_permille), ++sm_seen[task.job];
          plus(sample[col_gpu_mem], known(r.mem_used_mib));
          plus(sample[col_gpu_power], known(r.power_mw, 0.01));
          plus(sample[col_pcie_rx], known(r.pcie_rx_kib_s));
          plus(sample[col_pcie_tx], known(r.pcie_tx_kib_s));
          plus(sample[col_nvlink_rx], known(r.nvlink_rx_kib_s));
          plus(sample[col_nvlink_tx], known(r.nvlink_tx_kib_s));
        }
      }
      for (const auto& r : beat->tasks) {
        if (r.task != task_id)
          continue;
        plus(sample[col_cpu], known(r.cpu_milli));
        plus(sample[col_mem], known(r.mem_mib));
        plus(sample[col_read], known(r.read_kib_s));
        plus(sample[col_write], known(r.write_kib_s));
      }
      plus(sample[col_net_rx], known(beat->net_rx_kib_s));
      plus(sample[col_net_tx], known(beat->net_tx_kib_s));
    }
  }
  for (auto& [id, sample] : samples) {
    if (const auto n = gpus_seen.find(id); n != gpus_seen.end())
      sample[col_gpu_util] /= n->second;
    if (const auto n = sm_seen.find(id); n != sm_seen.end())
      sample[col_sm_active] /= n->second;
    auto [at, fresh] = jobs_.try_emplace(id);
    Live& live = at->second;
    live.seen = true;
    if (fresh) {
      const Job& job = state.jobs.at(id);
      const WallTime begin = job.started_at && job.started_at < now ? job.started_at : now;
      live.series = JobSeries(begin);
      live.saved_at = now;
      live.loaded = (now - begin) < seconds(10);  // just begun: nothing can be stored
      if (!live.loaded) {
        (void)options_.workers->submit(
            [history = options_.history, id] { return history->job(id); },
            [this, alive = alive_, id](Result<std::optional<JobSeries>> stored) {
              if (!*alive)
                return;
              const auto found = jobs_.find(id);
              if (found == jobs_.end())
                return;
              if (stored && *stored)
                found->second.series = std::move(**stored);
              found->second.loaded = true;
            });
      }
    }
    live.series.add(now, sample);
  }
  // Jobs that no longer run are saved and let go when the store has them; running ones now and
  // then.
  std::vector<History::JobRecord> records;
  for (auto& [id, live] : jobs_) {
    const bool gone = !live.seen && !state.find_job(id);
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
  for (const auto& record : *shared)  // too much to do: next time
    if (const auto found = jobs_.find(record.job); found != jobs_.end())
      found->second.saved_at = WallTime{1};
}

void Sampling::sample_gpus(WallTime now) {
  const control::State& state = options_.engine->state();
  std::vector<History::Sample> samples;
  double util = 0, power = 0;
  int util_known = 0, count = 0;
  std::int64_t given = 0, spend_nano = 0, idle_nano = 0;
  for (const auto& [id, node] : state.nodes) {
    count += static_cast<int>(node.offer.gpus.size());
    const auto* beat = options_.agents->readings(id);
    if (!beat)
      continue;
    for (const auto& r : beat->gpus) {
      const auto index = static_cast<std::size_t>(r.gpu);
      if (index >= node.offer.gpus.size())
        continue;
      GpuSampleRow row;
      row[gpu_util] = known(r.util_pct, 10);
      row[gpu_sm_active] = known(r.sm_active_permille);
      row[gpu_mem] = known(r.mem_used_mib);
      row[gpu_power] = known(r.power_mw, 0.01);
      row[gpu_temperature] = known(r.temperature_c);
      row[gpu_pcie_rx] = known(r.pcie_rx_kib_s);
      row[gpu_pcie_tx] = known(r.pcie_tx_kib_s);
      row[gpu_nvlink_rx] = known(r.nvlink_rx_kib_s);
      row[gpu_nvlink_tx] = known(r.nvlink_tx_kib_s);
      samples.push_back({fmt::format("{}/{}", node.offer.name, node.offer.gpus[index].uuid), row});
      if (r.util_pct >= 0)
        util += r.util_pct, ++util_known;
      power += static_cast<double>(r.power_mw) / 1000;
    }
  }
  for (const auto& [id, task] : state.tasks) {
    if (task.state == TaskState::ended)
      continue;
    given += ledger::gpu_milli(task);
    spend_nano += task.rate.nano_usd_per_s * ledger::charged_milli(task) / 1000;
  }
  for (const auto& [id, job] :
       api::idle_jobs(state, [this](NodeId node) { return options_.agents->readings(node); }))
    idle_nano += job.nano_usd_per_s;
  const auto live = [&](JobState s) {
    const auto found = state.count.find(s);
    return found == state.count.end() ? 0.0 : static_cast<double>(found->second);
  };
  GpuSampleRow fleet;
  fleet.fill(unknown);
  fleet[fleet_util] = util_known ? util * 10 / util_known : unknown;
  fleet[fleet_given] = static_cast<double>(given);
  fleet[fleet_gpus] = count;
  fleet[fleet_power] = power;
  fleet[fleet_running] = live(JobState::running);
  fleet[fleet_queued] = live(JobState::queued);
  fleet[fleet_spend] =
      static_cast<double>(spend_nano) * 3600 / 1e6;  // thousandths of a dollar an hour
  fleet[fleet_idle_spend] = static_cast<double>(idle_nano) * 3600 / 1e6;
  samples.push_back({"fleet", fleet});
  (void)options_.workers->submit(
      [history = options_.history, now, samples = std::move(samples)] {
        return history->add(now, samples);
      },
      [](Status added) {
        if (!added)
          log_warn("history: {}", added.error().message);
      });
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
