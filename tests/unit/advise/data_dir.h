// Where the measured data lies, if it lies anywhere: BILLOW_DATA_DIR, or ../shared/data beside the
// source tree.
#pragma once

#include <cstdlib>
#include <string>

#include "base/file.h"

namespace billow::test {

inline std::string data_dir(const std::string& inside) {
  std::string source = __FILE__;
  auto root = source.substr(0, source.rfind("/tests/unit/"));
  const char* named = std::getenv("BILLOW_DATA_DIR");
  for (auto& dir : {named ? std::string(named) : std::string{}, root + "/../shared/data",
                    root + "/../../shared/data"})
    if (!dir.empty() && file_exists(dir + "/" + inside))
      return dir + "/" + inside;
  return {};
}

}  // namespace billow::test
