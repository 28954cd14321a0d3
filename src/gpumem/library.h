// The arena together with the jobs' piece stores, and the lock over all of them. Space is made by
// evicting pieces that no image refers to, of any job.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "gpumem/arena.h"
#include "gpumem/piece_store.h"

namespace billow::gpumem {

struct Library {
  Arena* arena = nullptr;
  std::mutex lock;
  std::map<std::uint64_t, std::shared_ptr<PieceStore>> stores;  // by tenant
  // `count` slots for a tenant; waits for a concurrent resume to free some. Empty: no space.
  std::vector<std::uint32_t> take(std::uint64_t tenant, std::size_t count, int timeout_ms);
  std::size_t available();  // slots that are free or can be freed by evicting
};

}  // namespace billow::gpumem
