// Measures the bandwidth between the GPUs of this machine, and between each GPU and the host, with
// the driver's copies, which take the same path as collectives. The CUDA driver is loaded at run
// time (BILLOW_CUDA names another library, for tests).
//
// Run it in a separate process: contexts take memory on every card until the process ends, and a
// card in a bad state may crash the process.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "base/result.h"

namespace billow {

struct PeerCopy {
  std::uint32_t from = 0, to = 0;  // in bus order, among the visible ones
  bool direct = false;             // not through the host's memory
  std::int64_t mb_s = 0;
};
struct HostCopy {
  std::uint32_t gpu = 0;
  std::int64_t to_gpu_mb_s = 0, from_gpu_mb_s = 0;
};
struct CopyFigures {
  std::uint32_t gpus = 0;
  std::vector<PeerCopy> peers;  // every ordered pair
  std::vector<HostCopy> host;
};
struct CopyOptions {
  std::uint64_t bytes = 64 << 20;     // of one copy
  Duration each = milliseconds(100);  // measuring time per pair
};
Result<CopyFigures> measure_copies(const CopyOptions& options);

Json copies_json(const CopyFigures& figures);
Result<CopyFigures> copies_from_json(const Json& json);

}  // namespace billow
