// The arena together with the jobs' piece stores, and the lock over all of them. Space is made by
// evicting pieces that no image refers to, of any job; if that is not enough, the tiers' thread is
// asked to move sleepers down.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "gpumem/arena.h"
#include "gpumem/lower_tiers.h"
#include "gpumem/piece_store.h"

namespace billow::gpumem {

struct Library {
  Arena* arena = nullptr;
  LowerTiers* lower = nullptr;
  std::mutex lock;
  std::map<std::uint64_t, std::shared_ptr<PieceStore>> stores;  // by tenant
  std::condition_variable short_of_slots;  // with `lock`: wakes the tiers' thread
  std::atomic<std::size_t> wanted{0};      // slots that somebody waits for
  // A suspend leaves these slots free, so that a job whose memory must be loaded from a lower tier
  // can always come back, even while another one leaves.
  std::size_t staging_slots = 0;
  enum class Purpose { suspend, load };
  std::atomic<std::uint64_t> spilled{0};  // pieces that were moved down so far

  // `count` slots for a tenant; waits while space is being made. Empty: no space.
  std::vector<std::uint32_t> take(std::uint64_t tenant,
                                  std::size_t count,
                                  int timeout_ms,
                                  Purpose purpose = Purpose::suspend);
  // Gives back slots and lower copies. With or without the lock.
  void give(std::uint64_t tenant, const Freed& freed);
  std::size_t available();  // slots that are free or can be freed by evicting, for a suspend
};

}  // namespace billow::gpumem
