#include "gpumem/library.h"

#include <chrono>
#include <thread>

namespace billow::gpumem {

std::vector<std::uint32_t> Library::take(std::uint64_t tenant, std::size_t count, int timeout_ms) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  for (;;) {
    std::vector<std::uint32_t> slots = arena->take(tenant, count, Arena::Foreign::overwritten);
    if (slots.size() == count)
      return slots;
    bool evicted_some = false;
    {
      const std::lock_guard guard(lock);
      const std::size_t free_now = arena->free_slots();
      for (auto& [who, store] : stores) {
        if (free_now >= count)
          break;
        const auto evicted = store->evict(count - free_now);
        evicted_some |= !evicted.empty();
        arena->give(who, evicted);
      }
    }
    if (evicted_some)
      continue;
    if (std::chrono::steady_clock::now() > deadline)
      return {};
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

std::size_t Library::available() {
  const std::lock_guard guard(lock);
  std::size_t n = arena->free_slots();
  for (const auto& entry : stores)
    n += entry.second->unreferred();
  return n;
}

}  // namespace billow::gpumem
