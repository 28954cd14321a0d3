#include "gpumem/piece_store.h"

#include "base/check.h"

namespace billow::gpumem {

std::uint32_t PieceStore::refer(const PieceKey& key) {
  Entry& e = entries_[key];
  if (e.references++ == 0 && e.slot != no_slot)
    unreferred_--;
  return e.slot;
}

void PieceStore::place(const PieceKey& key, std::uint32_t slot) {
  const auto e = entries_.find(key);
  BILLOW_CHECK(e != entries_.end() && e->second.references > 0 && e->second.slot == no_slot,
               "a piece is placed once, while it is referred to");
  e->second.slot = slot;
}

void PieceStore::unrefer(const PieceKey& key) {
  const auto e = entries_.find(key);
  BILLOW_CHECK(e != entries_.end() && e->second.references > 0,
               "a piece is let go as often as it was referred to");
  if (--e->second.references > 0)
    return;
  if (e->second.slot == no_slot)
    entries_.erase(e);
  else
    unreferred_++;
}

std::vector<std::uint32_t> PieceStore::evict(std::size_t count) {
  std::vector<std::uint32_t> out;
  for (auto e = entries_.begin(); e != entries_.end() && out.size() < count && unreferred_ > 0;) {
    if (e->second.references > 0) {
      ++e;
      continue;
    }
    out.push_back(e->second.slot);
    unreferred_--;
    e = entries_.erase(e);
  }
  return out;
}

std::vector<std::uint32_t> PieceStore::clear() {
  std::vector<std::uint32_t> out;
  for (const auto& entry : entries_)
    if (entry.second.slot != no_slot)
      out.push_back(entry.second.slot);
  entries_.clear();
  unreferred_ = 0;
  return out;
}

}  // namespace billow::gpumem
