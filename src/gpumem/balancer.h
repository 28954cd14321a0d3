// Shares a GPU by progress. Pure: time and counters come in, gates come out.
//
// Usually all jobs run together and the driver interleaves their work: the card is never idle while
// a job has work, and jobs that leave gaps fill each other's. Each job is promised a part of the
// progress that it would make alone: its share, divided by the shares of all active jobs. A job
// that falls behind its promise gets a turn, in which the other jobs wait at their gates, until it
// has caught up. Turns overlap: the next job's gate opens while the GPU still finishes the work of
// the last one.
//
// Progress is measured against the job itself. Time alone on the GPU is progress in full, gaps
// included, because alone the job would spend them, too. All other time counts by the job's
// launches, at the rate it launches alone: what a hand-over costs is counted, too. That rate is
// taken from every turn, and from turns for measuring if a job has no others. Debts are carried
// over; a shortfall that all jobs have in proportion is forgotten, and so is credit beyond a limit.
//
// Jobs that do less together than in turns take exclusive turns, long enough to be worth their
// hand-over.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace billow::gpumem {

// What a job's pages showed since the last tick.
struct Seen {
  bool uses_gpu = false;  // has a process with a context
  bool waiting = false;   // a thread waits at the gate
  std::uint64_t launches = 0;
  std::int64_t passed_ns = 0;  // when a waiting thread last passed the gate
};

struct BalancerOptions {
  std::int64_t slack_ns = 5'000'000;         // how far behind a job must be to get a turn
  double urgent = 6;                         // times that: even if it catches up by itself
  std::int64_t turn_min_ns = 8'000'000;      // shorter turns end before the GPU is the job's alone
  std::int64_t turn_max_ns = 100'000'000;    // how long the other jobs wait at most
  std::int64_t together_min_ns = 6'000'000;  // the shortest time together
  std::int64_t quiet_ns = 4'000'000;         // without a launch this long: ask whether it is idle
  std::int64_t gap_ns = 20'000'000;          // idle for longer: it does not want the GPU
  std::int64_t credit_ns = 1'500'000'000;    // how far ahead a job can be, times its part,
  std::int64_t credit_max_ns = 150'000'000;  // and at most
  std::int64_t settle_ns = 8'000'000;        // a measurement leaves out what was queued before it
  std::int64_t alone_ns = 40'000'000;        // measure the rate alone for this long,
  std::int64_t together_ns = 80'000'000;     // and the rates together
  std::int64_t burst_ns = 300'000;           // launches further apart begin a new burst
  std::int64_t again_first_ns = 1'000'000'000;   // measure again after this time, later after
  std::int64_t again_most_ns = 3'000'000'000;    // up to this,
  std::int64_t again_easy_ns = 9'000'000'000;    // or this, while it has more than its promise,
  std::int64_t again_ahead_ns = 30'000'000'000;  // or this, while it has far more
  double easy = 1.15;  // that is, together all make this many times their promised progress,
  double ahead = 1.5;  // or it alone makes this many times its own
  // Added to the promise, against errors of measurement; less to a large one, which is mostly kept
  // in time alone, where nothing is estimated.
  double margin = 0.02, margin_large = 0.003;
  std::int64_t rest_ns = 500'000'000;      // idle for longer: its rates may be outdated
  std::int64_t compare_ns = 250'000'000;   // time over which launches are compared with the rates
  double change = 1.4;                     // a rate that is off by this factor is measured again
  double worthwhile = 0.99;                // if the rates together sum up to less, jobs take turns
  double memory_ns = 250e6;                // rates are means over about this much time
  std::int64_t exclusive_ns = 25'000'000;  // the shortest turn of jobs that always take turns
  double correct_ns = 50e6;  // how fast progress by launches corrects what was expected
  int stretch_max = 8;       // measure jobs with rare launches up to this many times longer
};

class Balancer {
 public:
  using Id = std::uint64_t;
  explicit Balancer(BalancerOptions options = {}) : options_(options) {}

  void add(Id job, std::uint32_t share_milli);
  void remove(Id job);
  void see(Id job, const Seen& seen, std::int64_t now_ns);
  // All processes of the job have finished the work they had when they were asked.
  void drained(Id job, std::int64_t now_ns);

  struct Decision {
    std::map<Id, bool> open;
    bool together = false;  // nobody has a turn: jobs may launch far in advance
    std::vector<Id> drain;  // ask these jobs when their work is finished
  };
  Decision tick(std::int64_t now_ns);
  // Another policy decides for a while: forget what was in progress.
  void reset();

  std::int64_t progress_ns(Id job) const;  // in time alone on the GPU
  std::uint64_t turns(Id job) const;
  double rate_together(Id job) const;  // progress per time while all run; 1: as alone

 private:
  struct Rate {
    double ns = 0, launches = 0;
    int odd = 0;  // how many measurements in a row were far off
    bool known() const { return ns > 0 && launches > 0; }
    double per_ns() const { return launches / ns; }
  };
  // Launches come in bursts. Whole periods from burst to burst give the rate without the error of
  // where a measurement begins and ends.
  struct Meter {
    std::int64_t from_ns = 0, first_ns = 0, last_ns = 0;  // begin, first and last start of a burst
    double all = 0, in_periods = 0, since_burst = 0;
    int bursts = 0;
  };
  struct Job {
    std::uint32_t share_milli = 1000;
    Seen seen;
    std::int64_t launched_ns = 0;  // when the launch count last changed
    std::uint64_t launches = 0;    // already counted in a rate
    bool open = true;
    bool at_rest = true;  // the GPU has no work of it
    std::int64_t rested_ns = 0;
    bool drain_sent = false, opened_since = false;
    std::uint64_t launches_at_drain = 0;
    double behind_ns = 0, progress_ns = 0;
    double uncounted_ns = 0;  // progress by launches, not yet counted
    Rate alone, together;
    Meter meter;
    std::int64_t last_launch_ns = 0;
    std::int64_t idle_since_ns = 0;
    std::int64_t silence_ns = 0;  // the longest between launches, of late
    // Launches seen and expected by the rates, to notice that the program does something else now.
    double seen_launches = 0, expected_launches = 0, compared_ns = 0;
    int stretch = 1;  // measurements are this many times longer: its launches are rare
    std::int64_t measure_ns = 0, again_ns = 0;  // when to measure it alone, and the time between
    std::int64_t measured_ns = 0;               // when it was
    std::uint64_t turns = 0;
    bool active = false;
    double target = 0;  // promised progress per time
  };
  using Entry = std::pair<const Id, Job>;
  bool has_gpu_alone(const Job& job) const;
  bool lone_is_alone() const;
  bool easy_together() const;
  double margin(const Job& job) const;
  double together_rate(const Job& job) const;
  void find_active(std::int64_t now_ns);
  void account(std::int64_t now_ns, double spent_ns);
  void measure(Job& job, double launches, std::int64_t now_ns);
  double progress(Job& job, double launches, double spent_ns) const;
  bool far_ahead(const Job& job) const;
  bool take_turns() const;
  void learn(Rate& rate, double ns, double launches, int stretch) const;
  void take_rates(std::int64_t now_ns);
  void compare(Job& job, bool alone, double launches, std::int64_t now_ns, double spent_ns);
  void forget_rates(Job& job, std::int64_t now_ns);
  void settle_debts();
  std::int64_t measurement_ns() const;
  bool phase_over(std::int64_t now_ns) const;
  bool others_due() const;
  double credit(const Job& job) const;
  Id pick(std::int64_t now_ns, bool& measures) const;
  void next_phase(std::int64_t now_ns);
  void begin(Id turn, bool measures, std::int64_t now_ns);

  BalancerOptions options_;
  std::map<Id, Job> jobs_;
  Id turn_ = 0;  // 0: together
  bool measuring_ = false;
  std::int64_t began_ns_ = 0, last_ns_ = 0;
  std::int64_t settled_from_ns_ = 0;
  std::int64_t clean_ns_ = 0;  // since when the phase shows rates; 0: not yet
  std::int64_t together_at_ns_ = 0, together_again_ns_ = 0;  // when to measure all together
  std::size_t active_ = 0;
};

}  // namespace billow::gpumem
