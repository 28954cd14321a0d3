// Chooses the library: an explicit path, $BILLOW_NVML, the simulated one, or the driver's.
#include "gpu/backend.h"

#include <cstdlib>

#include <fmt/format.h>

#include "base/file.h"
#include "gpu/nvml_backend.h"
#include "gpu/sim/spec.h"

namespace billow {
namespace {
constexpr const char* sim_library_name = "libbillow-nvml-sim.so";
constexpr int folders_up_max = 4;
}  // namespace

Result<std::string> find_sim_library() {
  std::string folder = executable_dir();
  const std::string first = folder;
  // An empty folder is the root, which is checked last: /bin/billow finds /lib.
  for (int up = 0; up < folders_up_max; ++up) {
    for (const char* sub : {"/", "/lib/", "/lib/billow/"}) {
      if (std::string path = folder + sub + sim_library_name; file_exists(path))
        return path;
    }
    if (folder.empty())
      break;
    const auto slash = folder.rfind('/');
    folder = slash == std::string::npos ? "" : folder.substr(0, slash);
  }
  return fail(Code::unsupported,
              fmt::format("{} was not found next to {} or in a lib folder near it",
                          sim_library_name, first),
              fmt::format("build the target billow_nvml_sim, or set BILLOW_NVML to the path of {}",
                          sim_library_name));
}

Result<std::unique_ptr<GpuBackend>> GpuBackend::open(Options options) {
  NvmlLibrary::Options load{options.library, options.sim, options.sim_state_dir};
  // Report a wrong specification before looking for a library, so that the error is the same with
  // and without one.
  if (!options.sim.empty())
    load.sim = sim_spec_text(BILLOW_TRY(parse_sim_spec(options.sim)));
  if (load.path.empty()) {
    if (const char* path = std::getenv("BILLOW_NVML"); path && *path)
      load.path = path;
  }
  if (load.path.empty()) {
    const bool simulated =
        !options.sim.empty() || (std::getenv("BILLOW_SIM") && *std::getenv("BILLOW_SIM"));
    load.path = simulated ? BILLOW_TRY(find_sim_library()) : std::string("libnvidia-ml.so.1");
  }
  return NvmlBackend::open(BILLOW_TRY(NvmlLibrary::load(load)), options);
}

}  // namespace billow
