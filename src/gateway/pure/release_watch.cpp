#include "gateway/pure/release_watch.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/text.h"

namespace billow::gateway {
namespace {

std::size_t bucket_of(Duration d) {
  const double us = std::max(static_cast<double>(d.ns) / 1000, 1.0);
  return static_cast<std::size_t>(std::log(us) / std::log(1.2));
}

double part(std::uint64_t hits, std::uint64_t of) {
  return of == 0 ? 0 : static_cast<double>(hits) / static_cast<double>(of);
}

bool due(std::uint32_t& owed, std::uint32_t part) {
  owed += std::min(part, 1000u);
  if (owed < 1000)
    return false;
  owed -= 1000;
  return true;
}

}  // namespace

void Histogram::add(Duration d) {
  ++buckets_[std::min(bucket_of(d), buckets_.size() - 1)];
  ++count_;
  sum_s_ += d.seconds();
}

void Histogram::add(const Histogram& other) {
  for (std::size_t i = 0; i < buckets_.size(); ++i)
    buckets_[i] += other.buckets_[i];
  count_ += other.count_;
  sum_s_ += other.sum_s_;
}

Duration Histogram::quantile(double q) const {
  if (count_ == 0)
    return {};
  const auto want = static_cast<std::uint64_t>(std::ceil(q * static_cast<double>(count_)));
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < buckets_.size(); ++i)
    if ((seen += buckets_[i]) >= want)
      return nanoseconds(
          static_cast<std::int64_t>(std::pow(1.2, static_cast<double>(i) + 0.5) * 1000));
  return {};
}

std::uint64_t Histogram::above(Duration d) const {
  std::uint64_t n = 0;
  for (std::size_t i = bucket_of(d) + 1; i < buckets_.size(); ++i)
    n += buckets_[i];
  return n;
}

Bounds wilson(std::uint64_t hits, std::uint64_t of, double z) {
  if (of == 0)
    return {};
  const double n = static_cast<double>(of), p = part(hits, of), z2 = z * z;
  const double middle = (p + z2 / (2 * n)) / (1 + z2 / n);
  const double half = z / (1 + z2 / n) * std::sqrt(p * (1 - p) / n + z2 / (4 * n * n));
  return {std::max(0.0, middle - half), std::min(1.0, middle + half)};
}

std::string worse(const RevisionSample& old,
                  const RevisionSample& canary,
                  ReleaseGuard guard,
                  const ReleaseRule& rule) {
  if (guard == ReleaseGuard::off || canary.requests < rule.requests_min)
    return {};
  const double p = part(canary.errors, canary.requests), q = part(old.errors, old.requests);
  const double below = p - wilson(canary.errors, canary.requests, rule.z).low;
  const double above = wilson(old.errors, old.requests, rule.z).high - q;
  if (p - q - std::sqrt(below * below + above * above) > rule.error_margin)
    return fmt::format(
        "{} of its {} requests failed ({:.1f} %), {} of {} of the old revision ({:.1f} %)",
        canary.errors, canary.requests, p * 100, old.errors, old.requests, q * 100);
  if (guard == ReleaseGuard::errors || canary.latency.count() < rule.latency_canary_min ||
      old.latency.count() < rule.latency_old_min)
    return {};
  const Duration usual = old.latency.quantile(0.95);
  const Duration limit =
      nanoseconds(static_cast<std::int64_t>(static_cast<double>(usual.ns) * rule.latency_factor));
  const std::uint64_t slow = canary.latency.above(limit);
  if (wilson(slow, canary.latency.count(), rule.z).low <= 0.05)
    return {};
  return fmt::format(
      "it is slower: p95 {} over {} requests, {} over {} of the old revision; {:.0f} % of its "
      "answers took longer than {}",
      format_duration(canary.latency.quantile(0.95)), canary.latency.count(),
      format_duration(usual), old.latency.count(), part(slow, canary.latency.count()) * 100,
      format_duration(limit));
}

void ReleaseWatch::begin(std::uint32_t canary) {
  if (canary == number_)
    return;
  *this = {};
  number_ = canary;
}

void ReleaseWatch::served(Who who, bool error, Duration latency, SteadyTime now) {
  if (number_ == 0)
    return;
  const std::int64_t number = now.ns / slot_time.ns;
  Slot& slot = window_[static_cast<std::size_t>(number) % slots];
  if (slot.number != number)
    slot = {.number = number};
  for (RevisionSample* each :
       {who == Who::old ? &slot.old : &slot.canary, who == Who::old ? &old_ : &canary_}) {
    ++each->requests;
    if (error)
      ++each->errors;
    else
      each->latency.add(latency);
  }
}

RevisionSample ReleaseWatch::sum(Who who, SteadyTime now) const {
  RevisionSample out;
  const std::int64_t oldest = now.ns / slot_time.ns - static_cast<std::int64_t>(slots) + 1;
  for (const Slot& slot : window_) {
    if (slot.number < oldest)
      continue;
    const RevisionSample& each = who == Who::old ? slot.old : slot.canary;
    out.requests += each.requests;
    out.errors += each.errors;
    out.latency.add(each.latency);
  }
  return out;
}

std::string ReleaseWatch::verdict(ReleaseGuard guard, SteadyTime now) {
  constexpr ReleaseRule rule;
  if (number_ == 0 || canary_.requests < looked_at_ + rule.look_every)
    return {};
  looked_at_ = canary_.requests;
  return worse(sum(Who::old, now), sum(Who::canary, now), guard, rule);
}

bool ReleaseWatch::next(std::uint32_t part) {
  return due(owed_, part);
}

bool ReleaseWatch::next_mirrored(std::uint32_t part) {
  return due(owed_mirrored_, part);
}

bool ReleaseWatch::chosen(std::string_view client, std::uint32_t part) {
  std::uint64_t hash = 1469598103934665603u;  // FNV-1a, then mixed: its low bits alone are not even
  for (const char c : client)
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  hash ^= hash >> 33;
  hash *= 0xff51afd7ed558ccdu;
  hash ^= hash >> 33;
  return hash % 1000 < part;
}

}  // namespace billow::gateway
