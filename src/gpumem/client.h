// The agent's side of the GPU memory service's admin socket: one command, one answer. It blocks,
// and a suspend can take minutes, so callers with an event loop run it on a worker.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"

namespace billow::gpumem {

struct Reply {
  std::map<std::string, std::string> values;  // of the "ok" line
  // The lines of a status answer, each with "kind" = arena | job.
  std::vector<std::map<std::string, std::string>> lines;

  std::uint64_t number(const std::string& key) const;
  double real(const std::string& key) const;
};

Result<Reply> call_service(const std::string& admin_socket,
                           const std::string& command,
                           int timeout_ms = 180000);

}  // namespace billow::gpumem
