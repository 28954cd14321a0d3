// The store of images and environments that each user has on a node, and which of them are in use.
// Each task that runs or is about to start records in its scratch directory what its container is
// made from; anything that no task records may be removed.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/result.h"

namespace billow::container {

// Names of the entries, except those that begin with a dot.
std::vector<std::string> names_in(const std::string& directory);

bool in_use(const std::string& store, const std::string& what);
// Removes these entries of a folder of the store. For the agent, which may be root: the user owns
// the store and may put anything there, so no link is followed and no directory of anybody else is
// entered.
void remove_from_store(const std::string& store,
                       const std::string& folder,
                       const std::function<bool(const std::string& name)>& which);
// Records that the task of that key uses `what`. The caller holds the store's lock, so that no
// removal can happen between its check and this mark.
Status mark_in_use(const std::string& store, const std::string& key, const std::string& what);

// Holds a lock until the descriptor is closed. Empty: another process has held it for longer than
// `patience`.
Result<Fd> try_lock(const std::string& path, Duration patience);

// Disk space of a directory tree; a file with two names counts twice. Setting `stop` ends the walk
// early.
std::uint64_t disk_bytes(const std::string& directory, const std::atomic<bool>* stop = nullptr);

// Records that an image was used now, for the order in which images are removed.
void touch_image(const std::string& store, const std::string& id);
std::vector<std::string> least_recently_used_first(const std::string& store,
                                                   std::vector<std::string> ids);

}  // namespace billow::container
