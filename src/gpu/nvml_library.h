// Loads a real or simulated NVML and holds its functions. A missing library is an Error that says
// what to do; a missing function is a null pointer that callers check and `missing_features`
// reports.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "gpu/nvml_abi.h"

namespace billow {

struct NvmlFunctions {
#define BILLOW_DECLARE(name, parameters) billow::nvml::Return(*name) parameters = nullptr;
  BILLOW_NVML_REQUIRED(BILLOW_DECLARE)
  BILLOW_NVML_OPTIONAL(BILLOW_DECLARE)
  BILLOW_NVML_SIMULATED(BILLOW_DECLARE)
#undef BILLOW_DECLARE
  const char* (*nvmlErrorString)(billow::nvml::Return) = nullptr;
};

class NvmlLibrary {
 public:
  struct Options {
    std::string path;  // a path, or a name for the dynamic loader to find
    std::string sim;   // passed to a simulated library; an Error if the library is a real one
    std::string sim_state_dir;
  };
  // Loads and initialises. The destructor shuts it down again.
  static Result<std::unique_ptr<NvmlLibrary>> load(const Options& options);
  ~NvmlLibrary();
  NvmlLibrary(const NvmlLibrary&) = delete;
  NvmlLibrary& operator=(const NvmlLibrary&) = delete;

  const NvmlFunctions& call() const { return functions_; }
  const std::string& path() const { return path_; }
  bool simulated() const { return functions_.billowSimConfigure != nullptr; }
  std::string error_text(nvml::Return code) const;
  std::vector<std::string> missing_features() const;

 private:
  NvmlLibrary() = default;
  Status resolve();

  void* handle_ = nullptr;
  bool initialised_ = false;
  std::string path_;
  NvmlFunctions functions_;
  std::vector<std::string> missing_;
};

}  // namespace billow
