#include "core/agent/health.h"

#include <algorithm>

#include <fmt/format.h>

namespace billow::agent {
namespace {

constexpr std::size_t faults_kept_max = 64;
constexpr Duration healing = hours(1);
constexpr Duration heat_patience = seconds(60);  // a card may reach its limit for a moment
constexpr std::size_t program_faults_suspicious =
    5;  // within an hour: then the card may be the cause
constexpr std::int64_t corrected_per_hour_max = 100;
constexpr std::int64_t link_errors_grave = 100;  // new errors between two samples

}  // namespace

void GpuHealthWatch::add(Fault fault) {
  faults_.push_back(std::move(fault));
  if (faults_.size() > faults_kept_max)
    faults_.pop_front();
}

void GpuHealthWatch::take(const GpuEvent& event) {
  if (event.kind == GpuEventKind::xid || event.kind == GpuEventKind::lost)
    ++xids_;
  switch (event.fault) {
    case FaultClass::hardware:
      return add({event.time, 100, true, event.text});
    case FaultClass::driver:
      return add({event.time, 60, true, event.text});
    case FaultClass::informational:
      return;
    case FaultClass::application:
      break;
  }
  program_faults_.push_back(event.time);
  while (!program_faults_.empty() && event.time - program_faults_.front() > healing)
    program_faults_.pop_front();
  if (program_faults_.size() >= program_faults_suspicious)
    add({event.time, 30, false,
         fmt::format("{} program errors within an hour, the last {}", program_faults_.size(),
                     event.text)});
}

void GpuHealthWatch::take(const GpuSample& sample) {
  looked_at_ = sample.time;
  const bool bad = sample.health == GpuHealth::lost || sample.health == GpuHealth::failed;
  const bool was_bad = health_ == GpuHealth::lost || health_ == GpuHealth::failed;
  if (bad && !was_bad)
    add({sample.time, 100, true,
         sample.health == GpuHealth::lost ? "it fell off the bus" : "it does not answer"});
  health_ = sample.health;
  // The first sample includes errors from before this agent; only later ones are faults.
  const auto fresh = [](std::optional<std::int64_t>& before,
                        const std::optional<std::int64_t>& now) {
    const std::int64_t more = before && now ? std::max<std::int64_t>(0, *now - *before) : 0;
    if (now)
      before = now;
    return more;
  };
  if (const auto more = fresh(ecc_uncorrected_, sample.ecc_uncorrected); more > 0)
    add({sample.time, 60, true,
         fmt::format("{} uncorrected memory error{}", more, more == 1 ? "" : "s")});
  if (const auto more = fresh(ecc_corrected_, sample.ecc_corrected); more > 0) {
    if (sample.time - corrected_since_ > healing) {
      corrected_since_ = sample.time;
      corrected_recent_ = 0;
    }
    const bool before = corrected_recent_ > corrected_per_hour_max;
    corrected_recent_ += more;
    if (!before && corrected_recent_ > corrected_per_hour_max)
      add({sample.time, 20, false,
           fmt::format("{} corrected memory errors within an hour", corrected_recent_)});
  }
  if (const auto more = fresh(link_errors_, sample.link_errors); more > 0)
    add({sample.time, more >= link_errors_grave ? 60 : 10, false,
         fmt::format("{} new NVLink error{}", more, more == 1 ? "" : "s")});
  if (!sample.thermal_slowdown.value_or(false)) {
    hot_since_ = {};
    hot_told_ = false;
  } else if (!hot_since_) {
    hot_since_ = sample.time;
  } else if (!hot_told_ && sample.time - hot_since_ >= heat_patience) {
    hot_told_ = true;
    add({sample.time, 30, false,
         fmt::format("its clocks have been throttled by heat for {} s{}",
                     (sample.time - hot_since_).ns / 1'000'000'000,
                     sample.temperature_c ? fmt::format(" at {} °C", *sample.temperature_c) : "")});
  }
}

HealthVerdict GpuHealthWatch::verdict(WallTime now) const {
  HealthVerdict out;
  out.xids = xids_;
  int worst = 0, cost = 0;
  for (const Fault& fault : faults_) {
    if (!fault.lasting && now - fault.at > healing)
      continue;
    cost += fault.cost;
    out.fault_at = fault.at;
    if (fault.cost >= worst) {
      worst = fault.cost;
      out.fault = fault.text;
    }
  }
  out.score = std::max(0, 100 - cost);
  return out;
}

}  // namespace billow::agent
