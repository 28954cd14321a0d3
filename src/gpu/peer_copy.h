// How fast bytes go between the GPUs of this machine, and between each and the host: measured with
// the driver's own copies, which take the same way as a collective's. The CUDA driver is loaded at
// run time (BILLOW_CUDA names another library, for tests).
//
// Meant for a process of its own: contexts take memory on every card and go only with the process,
// and a card in a bad state may take the process with it.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "base/result.h"

namespace billow {

struct PeerCopy {
  std::uint32_t from = 0, to = 0;  // by the order of the bus, among those visible
  bool direct = false;             // without a detour through the host's memory
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
  Duration each = milliseconds(100);  // how long one pair is watched
};
Result<CopyFigures> measure_copies(const CopyOptions& options);

Json copies_json(const CopyFigures& figures);
Result<CopyFigures> copies_from_json(const Json& json);

}  // namespace billow
