#include "head/gateways/counts.h"

#include <algorithm>
#include <iterator>

namespace billow::head {
namespace {

using Reported = gateway::EndpointFigures;

// A counter, in what a gateway reports and in what the journal keeps.
struct Counter {
  std::uint64_t Reported::*reported;
  std::uint64_t EndpointCount::*kept;
};
constexpr Counter counters[] = {
    {&Reported::requests, &EndpointCount::requests},
    {&Reported::failed, &EndpointCount::failed},
    {&Reported::refused, &EndpointCount::refused},
    {&Reported::cancelled, &EndpointCount::cancelled},
    {&Reported::retried, &EndpointCount::retried},
    {&Reported::limited, &EndpointCount::limited},
    {&Reported::cold_starts, &EndpointCount::cold_starts},
    {&Reported::wakes, &EndpointCount::wakes},
    {&Reported::left_out, &EndpointCount::left_out},
    {&Reported::mirrored, &EndpointCount::mirrored},
    {&Reported::not_mirrored, &EndpointCount::not_mirrored},
    {&Reported::tokens_in, &EndpointCount::tokens_in},
    {&Reported::tokens_out, &EndpointCount::tokens_out},
};
static_assert(std::size(counters) == std::size(endpoint_counters));

std::uint64_t less(std::uint64_t all, std::uint64_t part) {
  return all > part ? all - part : 0;
}

Histogram missing_of(const Histogram& before, const Histogram& now) {
  Histogram out;
  out.counts = before.counts;
  for (std::size_t i = 0; i < std::min(out.counts.size(), now.counts.size()); ++i)
    out.counts[i] = less(out.counts[i], now.counts[i]);
  out.sum = out.count() == 0 ? 0 : std::max(0.0, before.sum - now.sum);
  return out;
}

NativeBuckets missing_of(const NativeBuckets& before, const NativeBuckets& now) {
  NativeBuckets out = before;
  for (std::size_t i = 0; i < out.counts.size(); ++i) {
    const std::int64_t at = out.from + static_cast<std::int64_t>(i) - now.from;
    if (at >= 0 && at < static_cast<std::int64_t>(now.counts.size()))
      out.counts[i] = less(out.counts[i], now.counts[static_cast<std::size_t>(at)]);
  }
  return out;
}

template <class Counts>
Counts sum_of(const Counts& a, const Counts& b) {
  Counts out = a;
  out.add(b);
  return out;
}

}  // namespace

void EndpointCounts::restore(const Endpoint& endpoint) {
  for (const EndpointCount& count : endpoint.counts)
    rows_[endpoint.name][count.gateway].total = count;
}

void EndpointCounts::heard(const gateway::EndpointFigures& report,
                           const std::string& gateway,
                           bool anew) {
  Row& row = rows_[report.name][gateway];
  EndpointCount now{.endpoint = report.name, .gateway = gateway};
  if (anew) {
    row.missing_first_byte = missing_of(row.first_byte, report.first_byte);
    row.missing_native = missing_of(row.native, report.first_byte_native);
  }
  for (const auto& [reported, kept] : counters) {
    if (anew)
      row.missing.*kept = less(row.total.*kept, report.*reported);
    // Within a connection counts do not fall, unless an endpoint of this name was made again.
    now.*kept = std::max(row.total.*kept, report.*reported + row.missing.*kept);
    row.recorded = row.recorded && now.*kept == row.total.*kept;
  }
  row.total = std::move(now);
  row.first_byte = sum_of(row.missing_first_byte, report.first_byte);
  row.native = sum_of(row.missing_native, report.first_byte_native);
}

void EndpointCounts::add_up(gateway::EndpointFigures& sum) const {
  const auto found = rows_.find(sum.name);
  if (found == rows_.end())
    return;
  for (const auto& [gateway, row] : found->second) {
    for (const auto& [reported, kept] : counters)
      sum.*reported += row.total.*kept;
    sum.first_byte.add(row.first_byte);
    sum.first_byte_native.add(row.native);
  }
}

std::vector<EndpointCount> EndpointCounts::news(const std::string& gateway) {
  std::vector<EndpointCount> out;
  for (auto& [endpoint, rows] : rows_)
    if (const auto found = rows.find(gateway); found != rows.end() && !found->second.recorded) {
      found->second.recorded = true;
      out.push_back(found->second.total);
    }
  return out;
}

}  // namespace billow::head
