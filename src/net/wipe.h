// Memory that held secrets does not keep them: a process that is given secrets overwrites all
// memory it frees, whichever part of it the secret passed through.
#pragma once

#include <cstddef>

namespace billow::net {

// From now on every block that C++ code frees is overwritten first. For the whole process; cannot
// be undone.
void wipe_freed_memory();
// Overwrites a buffer that stays allocated, if this process wipes what it frees.
void wipe_used(char* buffer, std::size_t bytes);

}  // namespace billow::net
