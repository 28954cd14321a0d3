// How many replicas an endpoint should have awake, decided from what it sees: pure, with time as an
// argument, so that an hour of traffic replays in milliseconds and the live gateway runs the very
// code that was replayed.
//
// The idea. Scaling is a race between work that waits and a replica that comes. What differs from
// other autoscalers is that a sleeping replica (suspended: its memory kept, its GPU given back)
// comes in well under a second, while a cold one takes minutes. So two questions are asked apart:
//   1. How many must be awake now? The fewest that keep the wait within the target: work in hand,
//   plus what is held and will not be
//      served in time by slots that become free. As long as waking is quicker than the wait
//      allowed, nothing is kept awake on suspicion.
//   2. How many must exist at all? Enough for the load that may come within the time of a cold
//   start: from the arrival rate over a
//      short and a long window (a burst counts at once, a lull only after a while), with a margin
//      for chance, and a larger one for an endpoint that has been seen for less time than a start
//      takes.
// A replica beyond need sleeps once it has been idle for about what waking it costs (renting versus
// buying: at most twice the best that could be had); the last one only after the endpoint's own
// idle time. A sleeper nobody wanted for its keep time is stopped. A replica that serves is never
// chosen, and one that is falling asleep is called back rather than another started. Panic: while
// somebody waits longer than the target, nobody goes to sleep, and for `panic_hold` after it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gateway/router.h"

namespace billow::gateway {

struct ScalePolicy {
  std::uint32_t min = 0;
  std::uint32_t max = 1;
  std::uint32_t concurrency = 8;
  Duration wait_target = milliseconds(500);  // a request should not be held longer; two thirds of a
                                             // latency objective, where one is set
  Duration idle = minutes(2);                // until the last one sleeps
  Duration keep_suspended =
      hours(1);                      // until a sleeper is stopped; 0: idle ones are stopped at once
  std::uint32_t base_on_demand = 0;  // the first so many never on spot
  bool spot_burst = false;           // what is beyond them is
};

// What others allow: quota, budget, and how many of its replicas the machines could hold.
struct ScaleCaps {
  std::uint32_t replicas_max = UINT32_MAX;
  std::string reason;  // why not more, for people
};

struct ScaleAction {
  enum class Kind { start, resume, suspend, stop };
  Kind kind = Kind::start;
  ReplicaKey replica = 0;  // of all but start
  bool spot = false;       // of start
};

// A mean that forgets: each observation counts `weight`, the first ones more.
class Learned {
 public:
  explicit Learned(Duration initial, double weight = 0.1)
      : mean_s_(initial.seconds()), weight_(weight) {}
  void add(Duration d);
  Duration value() const { return nanoseconds(static_cast<std::int64_t>(mean_s_ * 1e9)); }
  double seconds() const { return mean_s_; }
  std::uint64_t count() const { return count_; }

 private:
  double mean_s_;
  double weight_;
  std::uint64_t count_ = 0;
};

// Arrivals per second, fading with a time constant.
class Rate {
 public:
  explicit Rate(Duration constant) : constant_s_(constant.seconds()) {}
  void add(SteadyTime now);
  double per_second(SteadyTime now) const;
  double weight(SteadyTime now) const;  // how many arrivals the rate rests on

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

  // What to do now. Idempotent: asked again before anything has happened, it asks for nothing it
  // has already asked for, because the caller has put the replicas into their new phases by then.
  std::vector<ScaleAction> decide(const Router& router, const ScaleCaps& caps, SteadyTime now);

  Duration service_time() const { return service_.value(); }
  Duration resume_lead() const { return resume_lead_.value(); }
  Duration start_lead() const { return start_lead_.value(); }
  std::uint32_t wanted() const { return wanted_; }  // as last decided, for people
  bool panicking(SteadyTime now) const { return now < panic_until_; }
  double arrivals_per_s(SteadyTime now) const { return long_rate_.per_second(now); }

 private:
  std::uint32_t awake_needed(const Router& router, bool sleepers, SteadyTime now) const;
  double load_ahead(const Router& router, Duration horizon, SteadyTime now) const;
  double may_become(const Router& router, SteadyTime now) const;
  bool silent(const Router& router, SteadyTime now) const;
  std::uint32_t replicas_for(double load) const;
  void put_to_sleep(const Router& router,
                    std::uint32_t need,
                    SteadyTime now,
                    std::vector<ScaleAction>& actions) const;

  ScalePolicy policy_;
  Learned service_{seconds(1), 0.02};
  Learned resume_lead_{seconds(1)};
  Learned start_lead_{seconds(30), 0.3};
  Rate short_rate_{seconds(8)};
  Rate long_rate_{seconds(60)};
  Rate short_done_{seconds(8)};
  std::uint32_t wanted_ = 0;
  SteadyTime panic_until_;
  SteadyTime first_arrival_, last_arrival_;
};

}  // namespace billow::gateway
