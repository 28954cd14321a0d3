// Tries on this machine to get out of a job, the way a job of another user would, for `billow
// doctor --isolation`: the kernel that must enforce what the documentation promises shows whether
// it does.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace billow::agent {

struct EscapeTry {
  std::string name;    // "create a user namespace"
  bool held = true;    // it was refused
  std::string answer;  // the error that was the answer; empty: none
  std::string why;     // what this machine lacks, if it was not refused; empty: unknown
};
// Each runs in a process of its own that is confined like a job: as the user nobody (if this is
// root), without new privileges, with the system calls of jobs refused and in control groups with
// the network guard. Changes nothing on the machine, also where a try succeeds.
Result<std::vector<EscapeTry>> try_escapes();
// The same, and what strict isolation refuses besides, from this very process: it is behind the
// wall already.
Result<std::vector<EscapeTry>> try_escapes_from_here();

}  // namespace billow::agent
