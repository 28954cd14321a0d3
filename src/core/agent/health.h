// How well each GPU of the node is, as a score from 100 (nothing to say) to 0 (broken), out of what
// the driver tells: XID errors, memory errors, link errors, heat, and cards that do not answer.
// Pure: looks and time in, a score and the reason for it out.
//
// What holds: a score below limits::gpu_drain_score always has a reason and the time of the newest
// fault behind it, because the head drains the card with that reason and a person's "take work
// again" counts only against faults older than it. What a program did (an illegal address, XID 13
// or 31) is the program's fault: it costs the card nothing unless it happens again and again.
// Faults of hardware do not heal by waiting; heat, corrected errors and link errors are forgotten
// after an hour.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "gpu/device.h"

namespace billow::agent {

struct HealthVerdict {
  int score = 100;
  std::string fault;       // the gravest reason; empty at 100
  WallTime fault_at;       // of the newest fault that costs anything; zero: none
  std::uint64_t xids = 0;  // seen since the agent began
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
    bool lasting = false;  // does not heal by waiting
    std::string text;
  };
  void add(Fault fault);

  std::deque<Fault> faults_;  // newest last, bounded
  std::deque<WallTime> program_faults_;
  std::optional<std::int64_t> ecc_uncorrected_, ecc_corrected_, link_errors_;  // at the look before
  std::int64_t corrected_recent_ = 0;
  WallTime corrected_since_;
  WallTime hot_since_;
  bool hot_told_ = false;
  GpuHealth health_ = GpuHealth::ok;
  WallTime looked_at_;
  std::uint64_t xids_ = 0;
};

}  // namespace billow::agent
