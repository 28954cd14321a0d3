// The names under which a provider knows a pool's machines. They carry the installation and the
// pool, so that a machine can be told from those of others by its name alone, and the number of the
// machine at the end.
#pragma once

#include <string>
#include <string_view>

namespace billow::pool::rest {

class MachineNames {
 public:
  // "billow-1a2b3c4d-fast-" if that fits and has only lower-case letters, digits and dashes, else a
  // hash of installation and pool in its place.
  MachineNames(const std::string& installation, std::string pool, std::size_t bytes_max);

  std::string provider_name(std::string_view machine) const;  // "fast-7" → "billow-1a2b3c4d-fast-7"
  std::string machine_name(std::string_view provider_name) const;  // empty: not one of ours

 private:
  std::string pool_, prefix_;
};

}  // namespace billow::pool::rest
