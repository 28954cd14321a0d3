// The agent's side of the vault's admin socket: one command, one answer. Blocking; a suspend takes
// as long as it takes, so callers with an event loop run this on a worker.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"

namespace billow::gpumem {

struct Reply {
  std::map<std::string, std::string> values;  // of the "ok" line
  std::vector<std::map<std::string, std::string>>
      lines;  // of status: each with "kind" = arena | job

  std::uint64_t number(const std::string& key) const;
  double real(const std::string& key) const;
};

Result<Reply> call_vault(const std::string& admin_socket,
                         const std::string& command,
                         int timeout_ms = 180000);

}  // namespace billow::gpumem
