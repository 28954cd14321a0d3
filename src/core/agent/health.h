// A health score for each GPU, from 100 (healthy) to 0 (broken), computed from what the driver
// reports: XID errors, memory errors, link errors, heat, and cards that do not answer. Pure:
// samples and time go in, a score and its reason come out.
//
// Guarantees: a score below limits::gpu_drain_score always has a reason and the time of the newest
// fault, because the head drains the card with that reason, and an operator's "take work again"
// covers only older faults. Errors of a program (an illegal address, XID 13 or 31) do not count
// against the card unless they repeat. Hardware faults do not heal by waiting; heat, corrected
// errors and link errors are forgotten after an hour.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "gpu/device.h"

namespace billow::agent {

struct HealthVerdict {
  int score = 100;
  std::string fault;       // the most serious reason; empty at 100
  WallTime fault_at;       // of the newest fault that lowers the score; zero: none
  std::uint64_t xids = 0;  // seen since the agent started
};

class GpuHealthWatch {
 public:
  void take(const GpuEvent& event);
  void take(const GpuSample& sample);
  HealthVerdict verdict(WallTime now) const;

 private:
  struct Fault {
    WallTime at;
    int cost = 0;
    bool lasting = false;  // does not expire
    std::string text;
  };
  void add(Fault fault);

  std::deque<Fault> faults_;  // newest last, bounded
  std::deque<WallTime> program_faults_;
  std::optional<std::int64_t> ecc_uncorrected_, ecc_corrected_, link_errors_;  // last sample
  std::int64_t corrected_recent_ = 0;
  WallTime corrected_since_;
  WallTime hot_since_;
  bool hot_told_ = false;
  GpuHealth health_ = GpuHealth::ok;
  WallTime looked_at_;
  std::uint64_t xids_ = 0;
};

}  // namespace billow::agent
