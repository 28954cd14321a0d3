// Decides whether a task is working, from signals sampled every second or two: a pure state
// machine.
//
// No single signal is reliable: a driver reports "100 % utilisation" for one spinning thread, a
// compiler leaves the GPU cold for minutes, a dead notebook keeps its connections open. So a task
// is *quiet* at a sample only if none of the signals below shows work, and idle or hung only after
// it has been quiet without interruption for `confirm_after`:
//   GPU     SM or memory activity (GPM), otherwise utilisation; PCIe traffic; a change of the
//   memory
//           in use. One sample is enough.
//   host    storage and network bytes above what keep-alives, scrapes and autosaves cause, and
//           output above what a watchdog writes, averaged over `host_window`; CPU time, but only
//           with a trace of progress (bytes, page faults, memory, new processes, output), because a
//           spinning thread uses CPU too. Waiting in the kernel for a device counts for
//           `blocked_max`.
//   people  input on the terminal.
// A GPU that reports high utilisation while its SMs, memory and power show nothing is not working:
// if that lasts, the task is *hung* instead of idle. Power is judged relative to the card's range
// above its idle draw.
//
// In doubt a task is active: an unknown signal never counts as zero; a gap in the samples restarts
// the clock; figures of a shared card count for every holder unless the driver reports them per
// process. Invariants: the same samples give the same verdicts; `since` is never before the last
// work; active time never shrinks.
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

// One GPU of the task at one moment. Figures that the card or driver does not report are empty.
struct GpuSignal {
  std::optional<double> sm_active_pct, dram_active_pct, tensor_active_pct;  // GPM
  std::optional<double> util_pct;  // of the task's processes if `util_is_ours`, else of the card
  std::optional<double> mem_util_pct;  // of the memory controller
  std::optional<double> power_w, power_idle_w, power_limit_w;
  std::optional<double> pcie_bytes_s;  // both directions
  std::optional<std::int64_t> mem_used_mib;
  bool shared = false;        // other tasks hold slices of this card
  bool util_is_ours = false;  // util_pct is the sum over the task's processes
};

// What is known about a task at one moment. Counters are totals since any fixed moment; a drop (a
// process ended) counts as no use.
struct IdleSample {
  SteadyTime at;
  std::vector<GpuSignal> gpus;
  std::optional<std::int64_t> cpu_ns;    // of all its processes
  std::optional<std::int64_t> io_bytes;  // read and written through system calls, including pipes
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
  SteadyTime since;       // time of the last work; the quiet period began here
  Duration quiet;         // at the last sample
  bool spinning = false;  // CPU is used without a trace of progress, so the verdict is less certain
  std::string reason;     // "idle 12m: SM 0 %, 71 W (idle 68 W), CPU 0.1 %, no I/O"
  Duration active;        // in total; quiet periods under a minute count as work
};

struct IdleTuning {
  // As late as the promised ten minutes allow: work that wakes every ten minutes is common.
  Duration confirm_after = seconds(9 * 60 + 30);
  // For a task that has resumed work by itself after longer quiet periods.
  Duration confirm_after_max = minutes(14);
  Duration host_window = seconds(60);
  Duration hole_max = seconds(60);  // a longer gap between samples restarts the clock
  Duration blocked_max = minutes(30);
  // SM or memory activity in one sample: one request to a model gives 0.5 on an H200, an idle card
  // 0.0.
  double gpu_active_pct = 0.4;
  double util_active_pct = 5;        // without GPM; monitoring itself causes a few percent
  double util_busy_pct = 95;         // from here on the driver claims a busy card
  double pcie_active_bytes_s = 8e6;  // idle cards show up to about 2 MB/s of polling
  std::int64_t gpu_mem_step_mib = 16;
  // A claim is false if the card is below all of these. A deadlocked collective holds at most a
  // quarter of the SMs and moves no memory.
  double hung_still_pct = 2, hung_sm_pct = 30, hung_dram_pct = 1, hung_tensor_pct = 0.5,
         hung_power_range = 0.15;
  double hung_power_factor = 1.7;  // of idle power; one spinning thread draws 1.55 on an H200
  // A watchdog writes about a page per minute; a job that writes at this rate is working.
  double output_active_bytes_s = 1 << 10;
  double io_active_bytes_s = 64 << 10, net_rx_active_bytes_s = 4 << 10,
         net_tx_active_bytes_s = 64 << 10;
  double cpu_active_cores = 0.10;
  // Traces of progress that make CPU time count.
  double progress_io_bytes_s = 4 << 10, progress_net_bytes_s = 1 << 10, progress_faults_s = 20;
  std::int64_t progress_rss_mib = 4;
};

// What right-sizing needs. Bucket i holds the time in which max(SM, memory activity) was in
// [5i, 5i+5) %.
struct TaskPeaks {
  std::int64_t gpu_mem_peak_mib = 0;  // on its fullest card
  double sm_peak_pct = 0;
  std::array<std::int64_t, 20> engine_ms{};
  double engine_p95_pct() const;  // upper edge of the bucket; 0: nothing was measured
};

class IdleTracker {
 public:
  explicit IdleTracker(IdleTuning tuning = {}) : tuning_(tuning) {}
  // Samples arrive in order of time; one that is not later than the last is ignored.
  const IdleVerdict& add(const IdleSample& sample);
  void tune(const IdleTuning& tuning) { tuning_ = tuning; }
  const IdleVerdict& verdict() const { return verdict_; }
  const TaskPeaks& peaks() const { return peaks_; }
  // After a suspend the clock restarts: the task did not choose to be quiet.
  void restart(SteadyTime now);

 private:
  enum class GpuLook { work, nothing, false_busy, unknown };
  // Host use since the previous sample, kept for host_window.
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
  std::vector<double> learned_idle_w_;  // per GPU, from samples without work; 0: none yet
  SteadyTime last_work_;
  std::optional<SteadyTime> blocked_since_;
  std::int64_t quiet_samples_ = 0, false_busy_samples_ = 0;
  bool false_busy_now_ = false;
  Duration longest_return_;  // the longest quiet period that this task ended by itself
};

}  // namespace billow::agent
