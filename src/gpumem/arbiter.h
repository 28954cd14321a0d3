// Who may put work on a GPU now. Pure: time and what the jobs' pages say come in, gate words go
// out; the caller moves them.
//
// Jobs that share a GPU take exclusive turns. A turn is charged by the clock from the moment its
// first thread is through the gate until the shim says the GPU has finished what the job gave it:
// GPU time the job really kept others from, without the hand-over. The job with the least charged
// time for its share is next; time that nobody else wanted costs nothing in that reckoning; turns
// are short next to a second and long next to a hand-over. A job that wants nothing has no turn
// (work-conserving); a strict job has no more than its share even when nobody else wants the GPU. A
// lone job that is not strict has an open gate and is not measured at all.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace billow::gpumem {

struct ArbiterOptions {
  std::int64_t period_ns = 100'000'000;  // in which every wanting job has a turn, more or less
  std::int64_t turn_min_ns = 10'000'000;
  std::int64_t grace_ns =
      600'000;  // how long a job that is owed time and has just rested is waited for
  std::int64_t idle_ns =
      1'500'000;  // no launch for so long, and others want the GPU: the turn is over
  std::int64_t drain_max_ns =
      10'000'000'000;  // a holder that does not come to rest is no longer waited for
};

class Arbiter {
 public:
  using Id = std::uint64_t;
  explicit Arbiter(ArbiterOptions options = {}) : options_(options) {}

  void add(Id job, std::uint32_t share_milli, bool strict, std::int64_t now_ns);
  void remove(Id job);
  // Seen in the job's pages since the last tick.
  struct Seen {
    bool uses_gpu = false;  // has a process with a context
    bool waiting = false;   // a thread stands before the gate
    std::uint64_t launches = 0;
    std::int64_t passed_ns = 0;  // when a thread that had waited last went through
  };
  void see(Id job, const Seen& seen, std::int64_t now_ns);
  // The shim's answer to `drain`: all processes of the job are at rest.
  void drained(Id job, std::int64_t now_ns);

  struct Decision {
    std::vector<std::pair<Id, std::uint32_t>> gates;  // words that changed
    std::vector<Id> drain;                            // jobs to be told that their turn is over
  };
  Decision tick(std::int64_t now_ns);

  std::int64_t used_ns(Id job) const;
  std::uint64_t turns(Id job) const;
  bool contended() const { return contended_; }

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
  void set_gate(Id id, Job& job, std::uint32_t word, Decision& out);
  void grant(Id id, std::int64_t now_ns, Decision& out);
  std::int64_t turn_length(const Job& job, std::int64_t now_ns) const;

  ArbiterOptions options_;
  std::map<Id, Job> jobs_;
  enum class Phase { free, held, draining } phase_ = Phase::free;
  Id holder_ = 0;
  std::int64_t charged_to_ns_ = 0, granted_ns_ = 0, turn_ends_ns_ = 0, drain_began_ns_ = 0;
  bool begun_ = false;  // the holder's first thread is through the gate: from here on it is charged
  bool contended_ = false;
};

}  // namespace billow::gpumem
