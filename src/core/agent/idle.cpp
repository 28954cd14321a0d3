#include "core/agent/idle.h"

#include <fmt/format.h>

#include "base/text.h"

namespace billow::agent {

namespace {

double grown(const std::optional<std::int64_t>& now, const std::optional<std::int64_t>& before) {
  if (!now || !before || *now <= *before)
    return 0;
  return static_cast<double>(*now - *before);
}

// "0 %", "0.4 %", "43 %"
std::string percent(double value) {
  value = std::max(value, 0.0);  // rounding may leave a sum slightly below zero
  if (value >= 9.95 || value < 0.05)
    return fmt::format("{:.0f} %", value);
  return fmt::format("{:.1f} %", value);
}

std::string spell(Duration d) {
  const std::int64_t s = d.ns / 1'000'000'000;
  if (s < 60)
    return fmt::format("{}s", s);
  if (s < 3600)
    return fmt::format("{}m", s / 60);
  return s % 3600 >= 60 ? fmt::format("{}h {}m", s / 3600, s % 3600 / 60)
                        : fmt::format("{}h", s / 3600);
}

}  // namespace

double TaskPeaks::engine_p95_pct() const {
  std::int64_t total = 0;
  for (const std::int64_t ms : engine_ms)
    total += ms;
  if (total == 0)
    return 0;
  std::int64_t seen = 0;
  for (std::size_t i = 0; i < engine_ms.size(); ++i) {
    seen += engine_ms[i];
    if (seen * 100 >= total * 95)
      return 5.0 * static_cast<double>(i + 1);
  }
  return 100;
}

// The card's idle power. Its own history is better than the typical figure of its type: a context
// that keeps the clocks up raises it by half on some cards.
double IdleTracker::idle_power_w(std::size_t gpu, const GpuSignal& signal) const {
  if (gpu < learned_idle_w_.size() && learned_idle_w_[gpu] > 0)
    return learned_idle_w_[gpu];
  return signal.power_idle_w.value_or(0);
}

void IdleTracker::learn_idle_power(const IdleSample& sample) {
  learned_idle_w_.resize(sample.gpus.size(), 0);
  for (std::size_t i = 0; i < sample.gpus.size(); ++i) {
    const GpuSignal& gpu = sample.gpus[i];
    if (!gpu.power_w || gpu.util_pct.value_or(1) > 0 || gpu.sm_active_pct.value_or(0) > 0)
      continue;
    double& learned = learned_idle_w_[i];
    learned = learned == 0 ? *gpu.power_w : learned * 0.9 + *gpu.power_w * 0.1;
    // Just after work a card still cools down; its idle power is never far above its type's figure.
    if (gpu.power_idle_w)
      learned = std::min(learned, *gpu.power_idle_w * 2);
  }
}

// The first figure that decides: whose work it is on a shared card; traffic and changes of memory;
// the power of a card without counters; for a card that claims to be busy, whether all other
// figures contradict it (a hung kernel); else the counters of its engines.
IdleTracker::GpuLook IdleTracker::look(const GpuSignal& now, const GpuSignal* before) const {
  const bool pcie = now.pcie_bytes_s.value_or(0) >= tuning_.pcie_active_bytes_s;
  const bool memory_moved =
      before && now.mem_used_mib && before->mem_used_mib &&
      std::abs(*now.mem_used_mib - *before->mem_used_mib) >= tuning_.gpu_mem_step_mib;
  if (now.shared) {
    // Only the driver's per-process figures show whose work it is. Without them, a cold card is
    // idle for all holders and a warm card for none.
    if (now.util_is_ours && now.util_pct)
      return *now.util_pct >= tuning_.util_active_pct || memory_moved ? GpuLook::work
                                                                      : GpuLook::nothing;
  }
  if (pcie || memory_moved)
    return GpuLook::work;
  if (!now.sm_active_pct && !now.util_pct) {
    if (!now.power_w || !now.power_idle_w)
      return GpuLook::unknown;
    return *now.power_w >= *now.power_idle_w * 1.3 ? GpuLook::work : GpuLook::nothing;
  }

  const double engines = std::max(now.sm_active_pct.value_or(0), now.dram_active_pct.value_or(0));
  const double util = now.util_pct.value_or(0);
  const bool gpm = now.sm_active_pct.has_value();
  if (!now.shared && util >= tuning_.util_busy_pct) {
    // Every known figure must contradict the claim, and power must be one of them unless the SMs
    // are still.
    const double idle_w = now.power_idle_w.value_or(0);
    // Small cards have a narrow power range and large ones a high idle draw: either measure counts.
    const bool near_idle =
        now.power_w && idle_w > 0 &&
        (*now.power_w <= idle_w * tuning_.hung_power_factor ||
         (now.power_limit_w &&
          *now.power_w - idle_w <= (*now.power_limit_w - idle_w) * tuning_.hung_power_range));
    const bool still = gpm && engines < tuning_.hung_still_pct;
    const bool sparse = (!gpm || *now.sm_active_pct < tuning_.hung_sm_pct) &&
                        now.dram_active_pct.value_or(0) < tuning_.hung_dram_pct &&
                        now.tensor_active_pct.value_or(0) < tuning_.hung_tensor_pct &&
                        now.mem_util_pct.value_or(0) <= 1;
    if ((still && (near_idle || !now.power_w)) || (sparse && near_idle))
      return GpuLook::false_busy;
  }
  if (gpm)
    return engines >= tuning_.gpu_active_pct ? GpuLook::work : GpuLook::nothing;
  return util >= tuning_.util_active_pct ? GpuLook::work : GpuLook::nothing;
}

bool IdleTracker::gpu_works(const IdleSample& sample) {
  bool work = false;
  false_busy_now_ = false;
  for (std::size_t i = 0; i < sample.gpus.size(); ++i) {
    GpuSignal now = sample.gpus[i];
    if (const double idle = idle_power_w(i, now); idle > 0)
      now.power_idle_w = idle;
    const GpuSignal* before = last_ && i < last_->gpus.size() ? &last_->gpus[i] : nullptr;
    switch (look(now, before)) {
      case GpuLook::work:
        work = true;
        break;
      case GpuLook::nothing:
        break;
      case GpuLook::false_busy:
        false_busy_now_ = true;
        break;
      case GpuLook::unknown:
        work = true;
        break;
    }
  }
  return work;
}

void IdleTracker::push_step(const IdleSample& sample) {
  Step step;
  step.at = sample.at;
  step.dt_s = (sample.at - last_->at).seconds();
  step.cpu_s = grown(sample.cpu_ns, last_->cpu_ns) / 1e9;
  step.io = grown(sample.io_bytes, last_->io_bytes);
  step.rx = grown(sample.net_rx_bytes, last_->net_rx_bytes);
  step.tx = grown(sample.net_tx_bytes, last_->net_tx_bytes);
  step.faults = grown(sample.page_faults, last_->page_faults);
  step.output = grown(sample.output_bytes, last_->output_bytes);
  step.rss_mib = sample.rss_mib && last_->rss_mib ? std::abs(*sample.rss_mib - *last_->rss_mib) : 0;
  step.births = std::abs(sample.processes - last_->processes);
  steps_.push_back(step);
  const auto account = [this](const Step& s, double sign) {
    sum_.dt_s += sign * s.dt_s;
    sum_.cpu_s += sign * s.cpu_s;
    sum_.io += sign * s.io;
    sum_.rx += sign * s.rx;
    sum_.tx += sign * s.tx;
    sum_.faults += sign * s.faults;
    sum_.output += sign * s.output;
    sum_.rss_mib += static_cast<std::int64_t>(sign) * s.rss_mib;
    sum_.births += static_cast<std::int32_t>(sign) * s.births;
  };
  account(step, 1);
  while (steps_.size() > 1 && sample.at - steps_.front().at >= tuning_.host_window) {
    account(steps_.front(), -1);
    steps_.pop_front();
  }
}

bool IdleTracker::made_progress(const Step& step) const {
  return step.io >= tuning_.progress_io_bytes_s * step.dt_s ||
         step.rx + step.tx >= tuning_.progress_net_bytes_s * step.dt_s ||
         step.faults >= tuning_.progress_faults_s * step.dt_s || step.births > 0 ||
         step.output >= 1;
}

// When the host last worked, if it did within the window. The window's average decides whether it
// did, so that one autosave is not work; the newest step above the threshold decides when, so that
// the tail of a window is not work either.
std::optional<SteadyTime> IdleTracker::host_worked(const IdleSample& sample) {
  verdict_.spinning = false;
  if (!last_ || sum_.dt_s <= 0 || !sample.cpu_ns)
    return sample.at;
  // Waiting for a device counts as work, but not for a whole weekend at a mount that never answers.
  if (sample.blocked > 0) {
    if (!blocked_since_)
      blocked_since_ = sample.at;
    if (sample.at - *blocked_since_ <= tuning_.blocked_max)
      return sample.at;
  } else {
    blocked_since_.reset();
  }
  const auto newest = [this](auto is_work) -> std::optional<SteadyTime> {
    for (auto step = steps_.rbegin(); step != steps_.rend(); ++step)
      if (is_work(*step))
        return step->at;
    return std::nullopt;
  };
  // Average over a whole window even if less of it has been seen, so that one burst after a start
  // is not taken for a rate.
  const double window_s = std::max(sum_.dt_s, tuning_.host_window.seconds());
  std::optional<SteadyTime> worked;
  const auto bytes = [&](double Step::*counter, double line_s) {
    if (sum_.*counter >= line_s * window_s)
      worked =
          std::max(worked, newest([&](const Step& s) { return s.*counter >= line_s * s.dt_s; }));
  };
  bytes(&Step::io, tuning_.io_active_bytes_s);
  bytes(&Step::rx, tuning_.net_rx_active_bytes_s);
  bytes(&Step::tx, tuning_.net_tx_active_bytes_s);
  bytes(&Step::output, tuning_.output_active_bytes_s);
  if (sum_.cpu_s < tuning_.cpu_active_cores * sum_.dt_s)
    return worked;
  // An unreadable counter may have moved.
  if (!sample.io_bytes || !sample.page_faults)
    return sample.at;
  const auto burns = [this](const Step& s) {
    return s.cpu_s >= tuning_.cpu_active_cores / 2 * s.dt_s;
  };
  if (made_progress(sum_))
    worked = std::max(worked, newest([&](const Step& s) { return burns(s) && made_progress(s); }));
  if (sum_.rss_mib >= tuning_.progress_rss_mib)
    worked = std::max(worked, newest([&](const Step& s) { return burns(s) && s.rss_mib > 0; }));
  verdict_.spinning = !worked || sample.at - *worked >= tuning_.host_window / 2;
  return worked;
}

void IdleTracker::note_peaks(const IdleSample& sample, Duration dt) {
  double engines = -1;
  for (const GpuSignal& gpu : sample.gpus) {
    peaks_.gpu_mem_peak_mib = std::max(peaks_.gpu_mem_peak_mib, gpu.mem_used_mib.value_or(0));
    if (gpu.sm_active_pct)
      peaks_.sm_peak_pct = std::max(peaks_.sm_peak_pct, *gpu.sm_active_pct);
    if (gpu.sm_active_pct || gpu.util_pct)
      engines = std::max({engines, gpu.sm_active_pct.value_or(gpu.util_pct.value_or(0)),
                          gpu.dram_active_pct.value_or(0)});
  }
  if (engines < 0 || dt.ns <= 0)
    return;
  peaks_
      .engine_ms[std::min<std::size_t>(19, static_cast<std::size_t>(std::max(0.0, engines) / 5))] +=
      dt.ms();
}

const IdleVerdict& IdleTracker::add(const IdleSample& sample) {
  if (last_ && sample.at <= last_->at)
    return verdict_;
  if (last_ && sample.at - last_->at > tuning_.hole_max)
    restart(sample.at);
  if (!last_)
    last_work_ = sample.at;
  learn_idle_power(sample);
  const bool gpu_work = gpu_works(sample);
  if (last_) {
    push_step(sample);
    note_peaks(sample, sample.at - last_->at);
  }
  const std::optional<SteadyTime> host = host_worked(sample);
  conclude(sample, gpu_work ? sample.at : host.value_or(SteadyTime{}));
  last_ = sample;
  return verdict_;
}

void IdleTracker::conclude(const IdleSample& sample, SteadyTime worked) {
  const bool by_itself = worked > last_work_;
  if (sample.last_input)
    worked = std::max(worked, std::min(*sample.last_input, sample.at));
  if (worked > last_work_) {
    // Time is counted when a quiet period is over: a short one counts as work, of a long one only
    // its last step.
    const Duration silence = worked - last_work_;
    const Duration step = last_ ? sample.at - last_->at : Duration{};
    verdict_.active = verdict_.active + (silence < minutes(1) ? silence : std::min(step, silence));
    // Only a task that resumed work by itself shows that such quiet periods are normal for it.
    if (by_itself && last_)
      longest_return_ = std::max(longest_return_, silence);
    last_work_ = worked;
    quiet_samples_ = false_busy_samples_ = 0;
  }
  if (last_work_ < sample.at) {
    ++quiet_samples_;
    if (false_busy_now_)
      ++false_busy_samples_;
  }
  verdict_.since = last_work_;
  verdict_.quiet = sample.at - last_work_;
  const Duration confirm =
      std::clamp(longest_return_ * 5 / 4, tuning_.confirm_after, tuning_.confirm_after_max);
  verdict_.state = IdleState::active;
  if (verdict_.quiet >= confirm)
    verdict_.state =
        false_busy_samples_ * 5 >= quiet_samples_ * 4 ? IdleState::hung : IdleState::idle;
  verdict_.reason = describe(sample);
}

void IdleTracker::restart(SteadyTime now) {
  last_.reset();
  steps_.clear();
  sum_ = {};
  blocked_since_.reset();
  last_work_ = now;
  quiet_samples_ = false_busy_samples_ = 0;
  verdict_.state = IdleState::active;
  verdict_.since = now;
  verdict_.quiet = {};
  verdict_.spinning = false;
}

std::string IdleTracker::describe(const IdleSample& sample) const {
  std::vector<std::string> parts;
  // The busiest card represents all of them.
  const GpuSignal* gpu = nullptr;
  std::size_t index = 0;
  for (std::size_t i = 0; i < sample.gpus.size(); ++i) {
    const auto load = [](const GpuSignal& g) {
      return g.sm_active_pct.value_or(g.util_pct.value_or(0));
    };
    if (!gpu || load(sample.gpus[i]) > load(*gpu)) {
      gpu = &sample.gpus[i];
      index = i;
    }
  }
  if (gpu) {
    if (gpu->sm_active_pct)
      parts.push_back("SM " + percent(*gpu->sm_active_pct));
    if (gpu->util_pct && (!gpu->sm_active_pct || *gpu->util_pct >= tuning_.util_busy_pct))
      parts.push_back("utilisation " + percent(*gpu->util_pct));
    if (!gpu->sm_active_pct && !gpu->util_pct)
      parts.push_back("no GPU activity signal");
    if (gpu->power_w) {
      const double idle = idle_power_w(index, *gpu);
      parts.push_back(idle > 0 ? fmt::format("{:.0f} W (idle {:.0f} W)", *gpu->power_w, idle)
                               : fmt::format("{:.0f} W", *gpu->power_w));
    }
    if (gpu->mem_used_mib && *gpu->mem_used_mib >= 1024)
      parts.push_back(
          fmt::format("{:.1f} GiB held", static_cast<double>(*gpu->mem_used_mib) / 1024));
  }
  const double dt = std::max(sum_.dt_s, 1.0);
  parts.push_back(sample.cpu_ns ? "CPU " + percent(sum_.cpu_s / dt * 100) +
                                      (verdict_.spinning ? " without progress" : "")
                                : "CPU unknown");
  const double io = (sum_.io + sum_.rx + sum_.tx) / dt;
  if (!sample.io_bytes && !sample.net_rx_bytes)
    parts.push_back("I/O unknown");
  else if (io < 1024)
    parts.push_back("no I/O");
  else
    parts.push_back(format_bytes(static_cast<std::uint64_t>(io)) + "/s I/O");
  if (sample.connections > 0)
    parts.push_back(fmt::format("{} open connection{}", sample.connections,
                                sample.connections == 1 ? "" : "s"));
  if (sample.traced > 0)
    parts.push_back(fmt::format("{} process{} stopped by a debugger", sample.traced,
                                sample.traced == 1 ? "" : "es"));
  if (sample.stopped > 0)
    parts.push_back(fmt::format("{} process{} stopped by a signal", sample.stopped,
                                sample.stopped == 1 ? "" : "es"));
  if (sample.zombies > 0)
    parts.push_back(fmt::format("{} zombie{}", sample.zombies, sample.zombies == 1 ? "" : "s"));
  const std::string figures = join(parts, ", ");
  if (verdict_.state == IdleState::active)
    return verdict_.quiet < seconds(60)
               ? "active: " + figures
               : fmt::format("quiet {}: {}", spell(verdict_.quiet), figures);
  return fmt::format("{} {}: {}", enum_name(verdict_.state), spell(verdict_.quiet), figures);
}

}  // namespace billow::agent
