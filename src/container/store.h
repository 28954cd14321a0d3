// What lies in a user's store on a node, and which of it is in use. Each task that runs, or is
// about to, names in its scratch space what its room is made of; what no task names may go.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/result.h"

namespace billow::container {

std::vector<std::string> names_in(
    const std::string& directory);  // but for those that begin with a dot

bool in_use(const std::string& store, const std::string& what);
// For the task of that key. Under the store's lock: who looks whether it is in use must not come
// between.
Status mark_in_use(const std::string& store, const std::string& key, const std::string& what);

// Held while the descriptor lives; an empty one where somebody else has it for longer than
// `patience`.
Result<Fd> try_lock(const std::string& path, Duration patience);

// On the disk, of everything below; a file with two names counts once for each. `stop`: nobody
// waits for it any more.
std::uint64_t disk_bytes(const std::string& directory, const std::atomic<bool>* stop = nullptr);

// When an image of the store was last asked for: the longest unused go first.
void touch_image(const std::string& store, const std::string& id);
std::vector<std::string> longest_unused_first(const std::string& store,
                                              std::vector<std::string> ids);

}  // namespace billow::container
