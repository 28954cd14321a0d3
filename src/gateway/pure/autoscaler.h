// How many replicas of an endpoint should be awake. Pure, with time as an argument: an hour of
// traffic replays in milliseconds, and the live gateway runs the same code.
//
// The idea. A suspended replica (its memory kept, its GPU released) wakes in well under a second,
// while a cold start takes minutes. So there are two questions:
//   1. How many must be awake now? The fewest that keep waiting times within the target: the
//      requests being served, plus held requests that free slots will not serve in time. As long as
//      waking is faster than the allowed wait, no replica is kept awake for requests that may come.
//   2. How many must exist? Enough for the load that may come within the time of a cold start. It
//      is estimated from the arrival rate over a short and a long window (a burst counts at once, a
//      lull only after a while), with a margin for chance, and a larger one for an endpoint that
//      has been observed for less time than a start takes.
// A replica that is not needed is suspended after it has been idle for about as long as waking it
// costs (the rent-or-buy rule: at most twice the optimal cost); the last one only after the
// endpoint's idle time. A suspended replica that was not needed for its keep time is stopped. A
// busy replica is never chosen, and one that is falling asleep is called back before another is
// started. What is not seen in requests comes from outside (ScaleCaps): the least number by the
// clock, a query or the pattern of earlier days, and the most that may be paid for. With
// `target_tokens`, a replica serves as many requests at once as have that many tokens, by the mean
// of earlier answers. Panic: while a request waits longer than the target, and for `panic_hold`
// afterwards, no replica is suspended.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gateway/pure/router.h"

namespace billow::gateway {

struct ScalePolicy {
  std::uint32_t min = 0;
  std::uint32_t max = 1;
  std::uint32_t concurrency = 8;
  // A request should not be held longer; two thirds of the latency objective, if one is set.
  Duration wait_target = milliseconds(500);
  Duration idle = minutes(2);  // until the last one sleeps
  // Until a sleeping replica is stopped; 0: idle ones are stopped at once.
  Duration keep_suspended = hours(1);
  std::uint32_t base_on_demand = 0;  // this many are never spot
  bool spot_burst = false;           // the others are
  std::uint64_t target_tokens = 0;   // in flight per replica; 0: only `concurrency` counts
};

// External limits: quota, budget, spending, how many replicas the machines could hold, and how many
// are wanted whatever the requests are.
struct ScaleCaps {
  std::uint32_t replicas_max = UINT32_MAX;
  std::uint32_t awake_max = UINT32_MAX;  // sleeping ones cost nothing and do not count
  std::uint32_t awake_min = 0;
};

struct ScaleAction {
  enum class Kind { start, resume, suspend, stop };
  Kind kind = Kind::start;
  ReplicaKey replica = 0;  // for all but start
  bool spot = false;       // for start
};

// A decaying mean: each observation counts `weight`, the first ones more.
class Mean {
 public:
  explicit Mean(double initial = 0, double weight = 0.1) : mean_(initial), weight_(weight) {}
  void add(double value);
  double value() const { return mean_; }
  std::uint64_t count() const { return count_; }

 private:
  double mean_;
  double weight_;
  std::uint64_t count_ = 0;
};

// The same of times.
class Learned {
 public:
  explicit Learned(Duration initial, double weight = 0.1) : mean_(initial.seconds(), weight) {}
  void add(Duration d) { mean_.add(d.seconds()); }
  Duration value() const { return nanoseconds(static_cast<std::int64_t>(seconds() * 1e9)); }
  double seconds() const { return mean_.value(); }
  std::uint64_t count() const { return mean_.count(); }

 private:
  Mean mean_;
};

// Arrivals per second, decaying with a time constant.
class Rate {
 public:
  explicit Rate(Duration constant) : constant_s_(constant.seconds()) {}
  void add(SteadyTime now);
  double per_second(SteadyTime now) const;
  double weight(SteadyTime now) const;  // the number of arrivals behind the rate

 private:
  double constant_s_;
  double weight_ = 0;  // Σ e^(-age / constant)
  SteadyTime at_;
  SteadyTime first_;
  bool any_ = false;
};

class Autoscaler {
 public:
  explicit Autoscaler(ScalePolicy policy) : policy_(policy) {}
  void configure(ScalePolicy policy) { policy_ = policy; }
  const ScalePolicy& policy() const { return policy_; }

  void arrived(SteadyTime now);
  void served(Duration service_time, SteadyTime now);
  void woke(Duration lead) { resume_lead_.add(lead); }
  void came_up(Duration lead) { start_lead_.add(lead); }
  void used_tokens(std::uint64_t tokens) { tokens_.add(static_cast<double>(tokens)); }

  // What to do now. Idempotent: called again before anything has happened, it requests nothing
  // twice, because the caller has already put the replicas into their new phases.
  std::vector<ScaleAction> decide(const Router& router, const ScaleCaps& caps, SteadyTime now);

  Duration service_time() const { return service_.value(); }
  Duration resume_lead() const { return resume_lead_.value(); }
  Duration start_lead() const { return start_lead_.value(); }
  std::uint32_t wanted() const { return wanted_; }  // the last decision, for display
  bool limited() const { return limited_; }         // by `awake_max`, in the last decision
  bool panicking(SteadyTime now) const { return now < panic_until_; }
  std::uint32_t replicas_for(double load) const;  // concurrent requests

 private:
  std::uint32_t awake_needed(const Router& router, bool sleepers, SteadyTime now) const;
  double load_ahead(const Router& router, Duration horizon, SteadyTime now) const;
  double may_become(const Router& router, SteadyTime now) const;
  bool silent(const Router& router, SteadyTime now) const;
  void put_to_sleep(const Router& router,
                    std::uint32_t keep,
                    SteadyTime now,
                    std::vector<ScaleAction>& actions) const;

  ScalePolicy policy_;
  Learned service_{seconds(1), 0.02};
  Learned resume_lead_{seconds(1)};
  Learned start_lead_{seconds(30), 0.3};
  Mean tokens_;  // of a request that reported them
  Rate short_rate_{seconds(8)};
  Rate long_rate_{seconds(60)};
  Rate short_done_{seconds(8)};
  std::uint32_t wanted_ = 0;
  bool limited_ = false;
  SteadyTime panic_until_;
  SteadyTime first_arrival_, last_arrival_;
};

}  // namespace billow::gateway
