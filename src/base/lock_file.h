// Whether a process holds a lock file. This tells whether another process still runs: the kernel
// releases the lock when its holder ends, so unlike a process id in a file it is never stale.
#pragma once

#include <string>

namespace billow {

bool lock_is_held(const std::string& path);

}  // namespace billow
