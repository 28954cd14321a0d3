// The specification of a simulated node: "8xH100", "2xA100-40,4xL4", "2xH100+mig=1g.10gb/3g.40gb",
// or the path of a JSON file with the same content. Used by Billow, to refuse a bad specification
// with a clear error before anything starts, and by the simulated library.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "gpu/types.h"

namespace billow {

inline constexpr std::size_t sim_gpus_max = 128;

struct SimGpu {
  const GpuTypeFacts* facts = nullptr;
  std::int64_t memory_mib = 0;
  bool mig = false;                        // MIG mode is on
  std::vector<std::string> mig_instances;  // instances that exist from the start
};

struct SimSpec {
  std::vector<SimGpu> gpus;
  std::string driver_version;
  std::string runtime_version;  // "13.0"
  Vendor vendor() const { return gpus.empty() ? Vendor::unknown : gpus.front().facts->vendor; }
};

// The compact form:
//   ITEM,ITEM…  ITEM = [COUNTx]TYPE[+mig[=PROFILE/PROFILE…]][+mem=MIB] | driver=VERSION |
//               runtime=VERSION
// The JSON form:
//   {"driver": "…", "runtime": "…",
//    "gpus": [{"type": "H100", "count": 8, "mig": true | ["1g.10gb"], "memory_mib": N}]}
Result<SimSpec> parse_sim_spec(std::string_view text);
// The complete compact form: parse_sim_spec of it gives the same specification.
std::string sim_spec_text(const SimSpec& spec);

}  // namespace billow
