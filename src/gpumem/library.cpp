#include "gpumem/library.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace billow::gpumem {

namespace {
constexpr auto without_progress = std::chrono::seconds(3);
}

std::vector<std::uint32_t> Library::take(std::uint64_t tenant,
                                         std::size_t count,
                                         int timeout_ms,
                                         Purpose purpose) {
  const std::size_t keep = purpose == Purpose::suspend ? staging_slots : 0;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  struct Wanting {
    std::atomic<std::size_t>& sum;
    std::size_t added = 0;
    ~Wanting() { sum -= added; }
  } wanting{wanted};
  std::pair<std::uint64_t, std::size_t> seen{};
  auto changed = std::chrono::steady_clock::now();
  for (;;) {
    if (arena->free_slots() >= count + keep)
      if (auto slots = arena->take(tenant, count, Arena::Foreign::overwritten);
          slots.size() == count)
        return slots;
    bool evicted_some = false;
    {
      const std::lock_guard guard(lock);
      for (auto& [who, store] : stores) {
        const std::size_t free_now = arena->free_slots();
        if (free_now >= count + keep)
          break;
        Freed freed;
        store->evict(count + keep - free_now, freed);
        evicted_some |= !freed.slots.empty();
        give(who, freed);
      }
    }
    if (evicted_some)
      continue;
    if (!wanting.added)
      wanted += wanting.added = count + keep;
    short_of_slots.notify_all();
    const auto now = std::chrono::steady_clock::now();
    if (const std::pair<std::uint64_t, std::size_t> state{spilled, arena->free_slots()};
        state != seen) {
      seen = state;
      changed = now;
    }
    // A job whose gates are closed waits meanwhile.
    if (now > deadline || now - changed > without_progress)
      return {};
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void Library::give(std::uint64_t tenant, const Freed& freed) {
  if (!freed.slots.empty())
    arena->give(tenant, freed.slots);
  for (const LowerCopy& copy : freed.lower)
    lower->release(tenant, copy);
}

std::size_t Library::available() {
  const std::lock_guard guard(lock);
  std::size_t n = arena->free_slots();
  for (const auto& entry : stores)
    n += entry.second->unreferred();
  return n - std::min(n, staging_slots);
}

}  // namespace billow::gpumem
