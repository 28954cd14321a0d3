#include "gateway/pure/daily_pattern.h"

#include <algorithm>

namespace billow::gateway {
namespace {

constexpr double newest_weight = 0.5;
constexpr double negligible = 0.05;            // of a request: forgotten
constexpr Duration wake_margin = seconds(30);  // before the load of earlier days begins

std::int64_t slot_at(WallTime now) {
  return now.ns / DailyPattern::slot_length.ns;
}

}  // namespace

void DailyPattern::observe(double load, WallTime now) {
  const std::int64_t slot = slot_at(now);
  if (slot == slot_ || slot_ < 0) {
    peak_ = std::max(peak_, load);
    slot_ = slot;
    return;
  }
  if (slot < slot_)
    return;  // the clock was set back
  // The slot that has ended, and those that nobody has seen: the endpoint was idle or not there.
  if (peaks_.empty() && peak_ > 0)
    peaks_.assign(slots, 0);
  if (!peaks_.empty())
    for (std::int64_t each = slot_; each < std::min<std::int64_t>(slot, slot_ + slots); ++each) {
      double& known = peaks_[static_cast<std::size_t>(each) % slots];
      const double seen = each == slot_ ? peak_ : 0;
      known = known <= 0 ? seen : known + (seen - known) * newest_weight;
      if (known < negligible)
        known = 0;
    }
  slot_ = slot;
  peak_ = load;
}

double DailyPattern::expected(WallTime now, Duration ahead) const {
  if (peaks_.empty())
    return 0;
  double most = 0;
  const std::int64_t last = std::min<std::int64_t>(slot_at(now + ahead), slot_at(now) + slots - 1);
  for (std::int64_t slot = slot_at(now); slot <= last; ++slot)
    most = std::max(most, peaks_[static_cast<std::size_t>(slot) % slots]);
  return most;
}

void DailyPattern::restore(std::vector<double> peaks) {
  if (peaks.size() == slots)
    peaks_ = std::move(peaks);
}

std::uint32_t awake_by_pattern(DailyPattern& pattern,
                               const Router& router,
                               const Autoscaler& scaler,
                               WallTime now) {
  pattern.observe(
      static_cast<double>(router.in_flight()) + static_cast<double>(router.held()) + router.lent(),
      now);
  const bool sleeper =
      std::any_of(router.replicas().begin(), router.replicas().end(), [](const auto& each) {
        return each.second.phase == Phase::suspended && each.second.current;
      });
  const Duration lead = sleeper ? scaler.resume_lead() : scaler.start_lead();
  return scaler.replicas_for(pattern.expected(now, lead + wake_margin));
}

}  // namespace billow::gateway
