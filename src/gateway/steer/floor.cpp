// How many replicas are awake whatever the requests are: by the clock, by a query to Prometheus,
// and by the pattern of earlier days; and what the owner should know about all that.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "base/text.h"
#include "gateway/endpoint.h"

namespace billow::gateway {
namespace {

constexpr Duration query_period = seconds(15);
constexpr Duration query_valid = minutes(5);  // an answer counts for so long

}  // namespace

std::uint32_t LiveEndpoint::awake_min(SteadyTime now) {
  const EndpointScaling& scaling = row_.policy.scaling;
  std::uint32_t min = query_min(now);
  if (!wall_ || (periods_.empty() && !scaling.predict))
    return min;
  const WallTime wall = wall_();
  min = std::max(min, timed_min(periods_, wall));
  if (!scaling.predict)
    return min;
  if (pattern_.empty() && !totals.daily_peaks.empty())
    pattern_.restore(totals.daily_peaks);
  min = std::max(min, awake_by_pattern(pattern_, router, scaler, wall));
  totals.daily_peaks = pattern_.peaks_by_slot();
  return min;
}

std::uint32_t LiveEndpoint::query_min(SteadyTime now) const {
  const EndpointQuery& query = row_.policy.scaling.query;
  if (!query.any() || query_.value_at.ns == 0 || now - query_.value_at > query_valid)
    return 0;
  const double replicas = std::ceil(query_.value / query.target - 1e-9);
  return replicas <= 0 ? 0 : static_cast<std::uint32_t>(std::min(replicas, 1e6));
}

bool LiveEndpoint::query_due(SteadyTime now) {
  if (!row_.policy.scaling.query.any() || !row_.steered || query_.asking ||
      (query_.asked_at.ns != 0 && now - query_.asked_at < query_period))
    return false;
  query_.asking = true;
  query_.asked_at = now;
  return true;
}

void LiveEndpoint::query_answered(const std::string& query, Result<double> value, SteadyTime now) {
  if (query != row_.policy.scaling.query.query)
    return;  // another one has been deployed meanwhile
  query_.asking = false;
  if (value) {
    query_.value = *value;
    query_.value_at = now;
    query_.error.clear();
    return;
  }
  if (query_.error.empty())
    log_warn("endpoint {}: the query to Prometheus failed: {}", name_, value.error().message);
  query_.error = value.error().message;
}

std::vector<std::string> LiveEndpoint::notes() const {
  std::vector<std::string> out;
  if (recreates())
    out.push_back(
        recreating_ == row_.rolling
            ? fmt::format(
                  "revision {0} does not fit beside revision {1}, so revision {1} is stopped "
                  "first; requests wait until revision {0} is healthy ({2})",
                  row_.rolling, row_.serving, recreate_why_)
            : fmt::format(
                  "revision {1} is stopped before revision {0} starts (--strategy recreate); "
                  "requests wait until revision {0} is healthy",
                  row_.rolling, row_.serving));
  for (const auto& [key, live] : replicas_)
    if (sick(live))
      out.push_back(fmt::format("replica (job {}) is sick: it {}{}", key, live.sick_why,
                                live.healthy ? ", and no other replica can take its place"
                                             : " and gets no requests until it has recovered"));
  // The head knows and shows why a replica ended by itself.
  if (!failure_.empty() && failure_ != row_.failed_reason)
    out.push_back("the last start failed: " + failure_);
  if (scaler.limited() || row_.awake_max == 0)
    out.push_back(row_.awake_max_why);
  if (!query_.error.empty())
    out.push_back(fmt::format("--query is ignored{}: {}",
                              query_.value_at.ns == 0 ? "" : " when its last answer is 5 min old",
                              query_.error));
  return out;
}

}  // namespace billow::gateway
