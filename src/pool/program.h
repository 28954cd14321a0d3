// The program as rented machines fetch it from the head: one archive of the files that a node
// needs, named by its hash.
#pragma once

#include <string>

#include "base/result.h"

namespace billow::pool {

struct Program {
  std::string archive;  // tar
  std::string sha256;
};

// Packs billow, its supervisor, the GPU memory service and the libraries beside them. The same
// files give the same archive.
Result<Program> pack_program(const std::string& directory);

}  // namespace billow::pool
