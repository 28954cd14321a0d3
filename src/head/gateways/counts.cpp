#include "head/gateways/counts.h"

#include <algorithm>

namespace billow::head {
namespace {

EndpointCount count_of(const gateway::EndpointFigures& f) {
  return {.endpoint = f.name,
          .requests = f.requests,
          .failed = f.failed,
          .refused = f.refused,
          .cancelled = f.cancelled,
          .retried = f.retried,
          .limited = f.limited,
          .cold_starts = f.cold_starts,
          .wakes = f.wakes,
          .left_out = f.left_out,
          .mirrored = f.mirrored,
          .not_mirrored = f.not_mirrored,
          .tokens_in = f.tokens_in,
          .tokens_out = f.tokens_out};
}

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
  EndpointCount now = count_of(report);
  now.gateway = gateway;
  if (anew) {
    row.missing_first_byte = missing_of(row.first_byte, report.first_byte);
    row.missing_native = missing_of(row.native, report.first_byte_native);
  }
  for (const auto counter : endpoint_counters) {
    if (anew)
      row.missing.*counter = less(row.total.*counter, now.*counter);
    // Within a connection counts do not fall, unless an endpoint of this name was made again.
    now.*counter = std::max(row.total.*counter, now.*counter + row.missing.*counter);
    row.recorded = row.recorded && now.*counter == row.total.*counter;
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
    sum.requests += row.total.requests;
    sum.failed += row.total.failed;
    sum.refused += row.total.refused;
    sum.cancelled += row.total.cancelled;
    sum.retried += row.total.retried;
    sum.limited += row.total.limited;
    sum.cold_starts += row.total.cold_starts;
    sum.wakes += row.total.wakes;
    sum.left_out += row.total.left_out;
    sum.mirrored += row.total.mirrored;
    sum.not_mirrored += row.total.not_mirrored;
    sum.tokens_in += row.total.tokens_in;
    sum.tokens_out += row.total.tokens_out;
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
