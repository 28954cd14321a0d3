// Whether a canary is worse than the revision that it may replace. Pure: figures in, verdict out.
//
// Both revisions are observed over the same sliding window, so that a fault that begins late is not
// diluted by a good past, and a fault of something that both depend on speaks against neither.
//
// - Errors (answers with 5xx, lost connections, time-outs): the canary is worse if the lower bound
//   of the difference of the two error rates exceeds a margin. The bound is Newcombe's for two
//   proportions, from the Wilson bounds of each, one-sided at 99.9 %.
// - Latency: if the canary's 95th percentile were no worse than the old one's times a factor, at
//   most 5 % of its answers would take longer than that. The canary is slower if the Wilson lower
//   bound of the part that does, one-sided at 99.9 %, exceeds 5 %.
//
// A verdict is formed again only after `look_every` more requests of the canary: looking after each
// one would find a difference by chance sooner or later.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/clock.h"
#include "core/model/endpoint.h"

namespace billow::gateway {

// Durations in buckets that grow by 20 %: small, and accurate within 10 %.
class Histogram {
 public:
  void add(Duration d);
  void add(const Histogram& other);
  Duration quantile(double q) const;
  std::uint64_t above(Duration d) const;  // how many are in later buckets than d's
  std::uint64_t count() const { return count_; }
  double sum_s() const { return sum_s_; }

 private:
  std::array<std::uint32_t, 128> buckets_{};
  std::uint64_t count_ = 0;
  double sum_s_ = 0;
};

struct RevisionSample {
  std::uint64_t requests = 0;
  std::uint64_t errors = 0;
  Histogram latency;  // from the replica's getting a request to its first byte, without errors
};

struct ReleaseRule {
  std::uint64_t requests_min = 10;        // of the canary
  std::uint64_t latency_canary_min = 50;  // answers, for a verdict about latency
  std::uint64_t latency_old_min = 100;
  double error_margin = 0.01;
  double latency_factor = 1.25;
  double z = 3.09;  // one-sided 99.9 %
  std::uint64_t look_every = 10;
};

// Bounds of a proportion (Wilson's score interval).
struct Bounds {
  double low = 0, high = 1;
};
Bounds wilson(std::uint64_t hits, std::uint64_t of, double z);

// Why the canary is worse; empty: nothing says so.
std::string worse(const RevisionSample& old,
                  const RevisionSample& canary,
                  ReleaseGuard guard,
                  const ReleaseRule& rule = {});

// The figures of the two revisions while a canary runs, and who gets the next request.
class ReleaseWatch {
 public:
  enum class Who { old, canary };

  // Another canary, or none: the figures begin anew.
  void begin(std::uint32_t canary);
  void served(Who who, bool error, Duration latency, SteadyTime now);
  // Checked now and then; empty: the canary goes on.
  std::string verdict(ReleaseGuard guard, SteadyTime now);
  const RevisionSample& total(Who who) const { return who == Who::old ? old_ : canary_; }

  // The next request of its own: exactly `part` thousandths go to the canary, evenly spread.
  bool next(std::uint32_t part);
  bool next_mirrored(std::uint32_t part);
  // One of a client: the same client gets the same revision, and a larger part only adds clients.
  static bool chosen(std::string_view client, std::uint32_t part);

 private:
  static constexpr std::size_t slots = 10;
  static constexpr Duration slot_time = seconds(30);
  struct Slot {
    std::int64_t number = -1;
    RevisionSample old, canary;
  };
  RevisionSample sum(Who who, SteadyTime now) const;

  std::uint32_t number_ = 0;
  std::array<Slot, slots> window_;
  RevisionSample old_, canary_;  // since it began
  std::uint64_t looked_at_ = 0;  // requests of the canary at the last verdict
  std::uint32_t owed_ = 0, owed_mirrored_ = 0;
};

}  // namespace billow::gateway
