// Is this task working? Decided on the node, from signals sampled every second or two, by a pure
// state machine.
//
// No single signal can be believed: a driver says "100 % utilisation" for one thread that spins, a
// compile leaves the GPU cold for minutes, a dead notebook keeps its connections open. So a task is
// *quiet* at a sample only if nothing of what follows shows work, and idle or hung only after it
// has been quiet without a break for `confirm_after`:
//   GPU    SM or memory activity (GPM), else utilisation; PCIe traffic; a change of the memory
//   held. One sample is enough. host   storage and network bytes above what keep-alives, scrapes
//   and autosaves cause, and output above what a watchdog writes,
//          averaged over `host_window`;
//          CPU time, but only together with a trace of progress (bytes, page faults, memory, new
//          processes, output): a bare spin burns CPU too. Waiting in the kernel for a device counts
//          for as long as `blocked_max`.
//   people input on the terminal.
// A GPU whose utilisation says busy while its SMs, memory and power say otherwise is not working:
// if it stays so, the task is *hung* instead of idle. Power means nothing by itself: it is read as
// a part of the card's range above its own idle draw.
//
// Fails towards active: a signal that is not known is never taken for a zero; a hole in the samples
// starts the clock again; figures of a card shared with others count for every holder unless the
// driver tells whose they are. Invariants: the same samples give the same verdicts; `since` never
// lies before the last work; active time never shrinks.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "core/model/money.h"

namespace billow::agent {

// One GPU of the task at one moment. What the card or driver cannot tell is empty.
struct GpuSignal {
  std::optional<double> sm_active_pct, dram_active_pct, tensor_active_pct;  // GPM
  std::optional<double> util_pct;      // of the task's own processes where `shared` and the driver
                                       // tells, else of the card
  std::optional<double> mem_util_pct;  // of the memory controller
  std::optional<double> power_w, power_idle_w, power_limit_w;
  std::optional<double> pcie_bytes_s;  // both directions
  std::optional<std::int64_t> mem_used_mib;
  bool shared = false;        // others hold parts of this card: its own figures are theirs too
  bool util_is_ours = false;  // util_pct was added up from the task's processes
};

// What is known of a task at one moment. Counters are totals since any fixed moment; a drop (a
// process ended) counts as no use.
struct IdleSample {
  SteadyTime at;
  std::vector<GpuSignal> gpus;
  std::optional<std::int64_t> cpu_ns;  // of all its processes
  std::optional<std::int64_t>
      io_bytes;  // read and written through system calls, pipes and files alike
  std::optional<std::int64_t> net_rx_bytes, net_tx_bytes;
  std::optional<std::int64_t> page_faults;
  std::optional<std::int64_t> rss_mib;
  std::optional<std::int64_t> output_bytes;  // to its log or terminal
  std::optional<SteadyTime> last_input;      // on its terminal
  std::int32_t connections = 0;              // established
  std::int32_t processes = 0;                // all, of which:
  std::int32_t traced = 0, stopped = 0, zombies = 0, blocked = 0;
};

using billow::IdleState;

struct IdleVerdict {
  IdleState state = IdleState::active;
  SteadyTime since;  // of the last work; the quiet began here
  Duration quiet;    // at the last sample
  bool spinning =
      false;  // CPU is being used, without a trace of progress: the one doubt a verdict can carry
  std::string reason;  // "idle 12m: SM 0 %, 71 W (idle 68 W), CPU 0.1 %, no I/O"
  Duration active;     // of the whole time watched; quiet spells under a minute count as work
};

struct IdleTuning {
  Duration confirm_after = seconds(
      9 * 60 +
      30);  // as late as a promise of ten minutes allows: work that wakes every ten is common
  Duration confirm_after_max =
      minutes(14);  // for a task that has come back by itself from longer silences
  Duration host_window = seconds(60);
  Duration hole_max =
      seconds(60);  // without a sample for longer, nothing is known of the time between
  Duration blocked_max = minutes(30);
  double gpu_active_pct = 0.4;  // SM or memory activity in one sample: one request to a model reads
                                // 0.5 on an H200, an idle card 0.0
  double util_active_pct = 5;   // where there is no GPM; monitoring itself causes a few percent
  double util_busy_pct = 95;    // claims of a busy card begin here
  double pcie_active_bytes_s = 8e6;  // idle cards show up to about 2 MB/s of polling
  std::int64_t gpu_mem_step_mib = 16;
  // A busy claim is false below all of these. A deadlocked collective holds a quarter of the SMs at
  // most and moves no memory.
  double hung_still_pct = 2, hung_sm_pct = 30, hung_dram_pct = 1, hung_tensor_pct = 0.5,
         hung_power_range = 0.15;
  double hung_power_factor = 1.7;  // of idle power; one spinning thread draws 1.55 on an H200
  double output_active_bytes_s =
      1
      << 10;  // a page a minute is a watchdog or a heartbeat; text at this rate is what a job makes
  double io_active_bytes_s = 64 << 10, net_rx_active_bytes_s = 4 << 10,
         net_tx_active_bytes_s = 64 << 10;
  double cpu_active_cores = 0.10;
  // Traces of progress that make CPU time count.
  double progress_io_bytes_s = 4 << 10, progress_net_bytes_s = 1 << 10, progress_faults_s = 20;
  std::int64_t progress_rss_mib = 4;
};

// What right-sizing needs of a task's life. Bucket i holds the time in which max(SM, memory
// activity) was in [5i, 5i+5) %.
struct TaskPeaks {
  std::int64_t gpu_mem_peak_mib = 0;  // on its fullest card
  double sm_peak_pct = 0;
  std::array<std::int64_t, 20> engine_ms{};
  double engine_p95_pct() const;  // upper edge of the bucket; 0 where nothing was measured
};

class IdleTracker {
 public:
  explicit IdleTracker(IdleTuning tuning = {}) : tuning_(tuning) {}
  // Samples come in order of time; one that is not later than the last is passed over.
  const IdleVerdict& add(const IdleSample& sample);
  void tune(const IdleTuning& tuning) { tuning_ = tuning; }
  const IdleVerdict& verdict() const { return verdict_; }
  const TaskPeaks& peaks() const { return peaks_; }
  // What has been suspended begins anew: its silence was ours.
  void restart(SteadyTime now);

 private:
  enum class GpuLook { work, nothing, false_busy, unknown };
  // Host use since the sample before, kept for host_window.
  struct Step {
    SteadyTime at;
    double dt_s = 0, cpu_s = 0, io = 0, rx = 0, tx = 0, faults = 0, output = 0;
    std::int64_t rss_mib = 0;
    std::int32_t births = 0;
  };
  GpuLook look(const GpuSignal& now, const GpuSignal* before) const;
  bool gpu_works(const IdleSample& sample);
  void learn_idle_power(const IdleSample& sample);
  void push_step(const IdleSample& sample);
  std::optional<SteadyTime> host_worked(const IdleSample& sample);
  bool made_progress(const Step& step) const;
  void note_peaks(const IdleSample& sample, Duration dt);
  void conclude(const IdleSample& sample, SteadyTime worked);
  std::string describe(const IdleSample& sample) const;
  double idle_power_w(std::size_t gpu, const GpuSignal& signal) const;

  IdleTuning tuning_;
  IdleVerdict verdict_;
  TaskPeaks peaks_;
  std::optional<IdleSample> last_;
  std::deque<Step> steps_;
  Step sum_;                            // of steps_
  std::vector<double> learned_idle_w_;  // per GPU, from samples that showed nothing; 0: none yet
  SteadyTime last_work_;
  std::optional<SteadyTime> blocked_since_;
  std::int64_t quiet_samples_ = 0, false_busy_samples_ = 0;
  bool false_busy_now_ = false;
  Duration longest_return_;  // the longest silence this task ended by work of its own
};

// The verdict on a job of several tasks: it works as long as one of them does, for ranks wait for
// each other.
IdleVerdict combine(const std::vector<IdleVerdict>& tasks);

}  // namespace billow::agent
