// Shares of GPUs, and what a task asks of a node. Pure values, shared by the scheduler, the ledger
// and the agent.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace billow {

inline constexpr std::int32_t whole_gpu_milli = 1000;

// A part of one GPU: thousandths of its compute, and mebibytes of its memory. 1000 m is the whole
// card.
struct Share {
  std::int32_t milli = 0;
  std::int64_t mem_mib = 0;  // 0: in proportion to milli

  bool whole() const { return milli >= whole_gpu_milli; }
  bool operator==(const Share&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("milli", s.milli);
    v("mem_mib", s.mem_mib);
  }
};

// What one task asks of one node: `gpus` cards, each with `share` of it (a task with several GPUs
// takes whole cards).
struct Resources {
  std::int32_t gpus = 0;
  Share share;  // per GPU; {1000, 0} for whole cards
  std::vector<std::string>
      gpu_types;            // any of these (normalised: "H100", "A100-40"); empty: any type
  std::string mig_profile;  // "1g.10gb"; empty: none. Then gpus counts instances.
  std::int64_t cpu_milli = 0;
  std::int64_t mem_mib = 0;
  bool whole_node = false;  // bare metal: all GPUs and cores, no other job on the node, no sandbox
  bool exclusive = false;   // all GPUs and cores, no other job on the node, in the usual sandbox
  std::int64_t disk_mib = 0;  // of the file system that holds the node's data

  bool takes_node() const { return whole_node || exclusive; }

  bool operator==(const Resources&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("gpus", s.gpus);
    v("share", s.share);
    v("gpu_types", s.gpu_types);
    v("mig_profile", s.mig_profile);
    v("cpu_milli", s.cpu_milli);
    v("mem_mib", s.mem_mib);
    v("whole_node", s.whole_node);
    v("exclusive", s.exclusive);
    v("disk_mib", s.disk_mib);
  }
};

}  // namespace billow
