// The right card or slice for work that was measured once: its memory peak, how busy it kept the
// card, how long a step took. Memory decides what it fits; activity decides how much slower it
// would be on less.
//
// Invariants: nothing is recommended that the measured peak (with headroom) does not fit; if only
// utilisation is known, it is an upper bound of activity, because it reads 100 % whenever any
// kernel runs, and the answer says so.
#pragma once

#include "advise/recommend.h"

namespace billow::advise {

struct RunMeasured {
  std::string gpu;          // catalogue name or alias
  int gpus = 1;             // whole cards, or 1 with a share
  double share = 1;         // of one card
  double mem_peak_mib = 0;  // on the fullest card
  std::optional<double> sm_p95_pct, dram_p95_pct, util_p95_pct;
  std::optional<double> power_mean_w;
  double seconds = 0;
  int samples = 0;
  std::optional<double> step_s;  // between two lines of progress
  int steps = 0;
  bool shared = false;  // other jobs used the same card: the figures are the card's
};

struct SizeOption {
  std::string what;   // "0.25 of one H100-SXM", "MIG 2g.20gb of one H100-SXM", "1 × L4"
  std::string ask;    // "--gpus 0.25 --gpu-type H100": how to ask this Billow for it
  bool ours = false;  // this installation has it
  double memory_mib = 0;
  double slowdown = 1;  // expected, against the run measured; 1: as fast
  std::optional<double> usd_h;
  std::string price_from;
};

struct RightSize {
  double mem_needed_mib = 0;  // peak with headroom
  double activity = 1;        // of the whole card, 0 to 1
  std::string activity_from;  // "SM and DRAM activity", "utilisation, an upper bound", "unknown"
  bool trusted = true;        // enough samples, alone on the card
  std::vector<SizeOption> options;  // that fit, cheapest first
  std::optional<SizeOption> best;   // none: the current one is right
  std::string verdict;
  std::vector<std::string> notes;
};
RightSize right_size(const RunMeasured& run,
                     const std::vector<FleetGpu>& fleet,
                     const Catalogue& catalogue,
                     WallTime now = {});
Json right_size_json(const RunMeasured& run, const RightSize& size);
std::string right_size_text(const RunMeasured& run, const RightSize& size);

// What one kind of GPU can be cut into by MIG, by its memory; nothing for cards without it.
std::vector<FleetGpu::Mig> mig_shapes(const GpuSpec& gpu);

}  // namespace billow::advise
