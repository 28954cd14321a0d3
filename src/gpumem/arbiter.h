// Decides which job may put work on a GPU now. Pure: the time and the contents of the jobs' pages
// come in, gate words go out; the caller reads and writes the pages.
//
// Jobs that share a GPU usually run together, by progress (balancer.h). If one of them is strict,
// all take exclusive turns, because what is capped is time on the GPU. A turn is charged from the
// moment its first thread passes the gate until the shim reports that the GPU has finished the
// job's work. The hand-over is not charged. The job with the least charged time relative to its
// share is next; time that no other job wanted does not count in that comparison. A turn is shorter
// if a waiting job is behind: a job that used only part of its turn, because its next work was not
// ready, gets the rest back soon. Its short gaps are charged to it like time on the GPU: alone, it
// would have spent them, too, so what is shared is progress. Turns are short compared with a second
// and long compared with a hand-over. A job that wants nothing gets no turn (work-conserving); a
// strict job never gets more than its share, even if no other job wants the GPU. A lone job that is
// not strict has an open gate and is not measured.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gpumem/balancer.h"

namespace billow::gpumem {

struct ArbiterOptions {
  std::int64_t period_ns = 100'000'000;  // about once per period every waiting job has a turn
  std::int64_t turn_min_ns = 10'000'000;
  std::int64_t grace_ns = 600'000;   // wait this long for a job that is owed time and just rested
  std::int64_t idle_ns = 1'500'000;  // a turn ends after this long without a launch if others wait
  std::int64_t owed_min_ns = 4'000'000;  // the shortest turn, if another job is far behind
  std::int64_t gap_ns = 20'000'000;      // a job that returns within this time is charged its gap
  std::int64_t drain_max_ns = 10'000'000'000;  // stop waiting for a holder that does not drain
  BalancerOptions balancer;
};

class Arbiter {
 public:
  using Id = Balancer::Id;
  using Seen = gpumem::Seen;
  explicit Arbiter(ArbiterOptions options = {}) : options_(options), balancer_(options.balancer) {}

  void add(Id job, std::uint32_t share_milli, bool strict, std::int64_t now_ns);
  void remove(Id job);
  void see(Id job, const Seen& seen, std::int64_t now_ns);
  // The shim's answer to `drain`: all processes of the job have finished their work.
  void drained(Id job, std::int64_t now_ns);

  struct Decision {
    std::vector<std::pair<Id, std::uint32_t>> gates;  // words that changed
    std::vector<Id> drain;                            // jobs whose turn is over
  };
  Decision tick(std::int64_t now_ns);

  std::int64_t used_ns(Id job) const;  // time on the GPU, or progress in time alone on it
  std::uint64_t turns(Id job) const;
  bool contended() const { return contended_; }
  double rate_together(Id job) const { return balancer_.rate_together(job); }

 private:
  struct Job {
    std::uint32_t share_milli = 1000;
    bool strict = false;
    Seen seen;
    std::int64_t launched_ns = 0;  // when the launch count last changed
    std::int64_t used_ns = 0;
    double virtual_ns = 0;       // used while others wanted the GPU too, divided by share
    std::int64_t rested_ns = 0;  // when its last turn ended
    double tokens_ns = 0;        // of a strict job
    std::int64_t refilled_ns = 0;
    std::uint32_t gate = 0;
    std::uint64_t turns = 0;
  };
  void charge(Job& job, std::int64_t now_ns, bool others);
  bool wants(const Job& job, std::int64_t now_ns) const;
  bool may(const Job& job) const;
  bool owed(const Job& holder, std::int64_t now_ns) const;
  void set_gate(Id id, Job& job, std::uint32_t word, Decision& out);
  void grant(Id id, std::int64_t now_ns, Decision& out);
  void refill(std::int64_t now_ns);
  void continue_turn(std::int64_t now_ns, Decision& out);
  void start_turn(std::int64_t now_ns, Decision& out);
  std::int64_t turn_length(const Job& job, std::int64_t now_ns) const;

  void balance(std::int64_t now_ns, Decision& out);

  ArbiterOptions options_;
  Balancer balancer_;
  bool balancing_ = false, strict_ = false;
  std::map<Id, Job> jobs_;
  enum class Phase { free, held, draining } phase_ = Phase::free;
  Id holder_ = 0;
  std::int64_t charged_to_ns_ = 0, granted_ns_ = 0, turn_ends_ns_ = 0, drain_began_ns_ = 0;
  double turn_virtual_ns_ = 0;  // the turn's length in the holder's virtual time
  bool begun_ = false;  // the holder's first thread has passed the gate; it is charged from there
  bool contended_ = false;
};

}  // namespace billow::gpumem
