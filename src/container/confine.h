// The filters on system calls for the programs of a container.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"

namespace billow::container {

// From here on this process and its descendants can make no file with the set-user-id or
// set-group-id bit, nor give one capabilities. A container writes into directories of the node:
// such a file would there give the rights of its owner, the job's user or root, to anyone who
// executes it.
Status forbid_privileged_files();

// Refuses system calls to this process and its descendants: CallRules, as bits, and calls by
// number.
Status confine(std::uint32_t groups, const std::vector<std::uint32_t>& numbers = {});

}  // namespace billow::container
