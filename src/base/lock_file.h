// Whether somebody holds a lock file: how a process that may be gone without a word is known to
// run. The kernel gives the lock up with its holder, so unlike a number in a file the answer is
// never out of date.
#pragma once

#include <string>

namespace billow {

bool lock_is_held(const std::string& path);

}  // namespace billow
