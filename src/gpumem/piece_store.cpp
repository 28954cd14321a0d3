#include "gpumem/piece_store.h"

#include "base/check.h"

namespace billow::gpumem {

PieceStore::Entry& PieceStore::known(const PieceKey& key) {
  const auto e = entries_.find(key);
  BILLOW_CHECK(e != entries_.end(), "the piece is in the store");
  return e->second;
}

void PieceStore::drop_lower(Entry& entry, Freed& freed) {
  if (entry.lower.place != LowerCopy::Place::none)
    freed.lower.push_back(entry.lower);
  entry.lower = LowerCopy{};
}

bool PieceStore::refer(const PieceKey& key) {
  Entry& e = entries_[key];
  e.cleared = false;
  if (e.references++ == 0 && e.slot != no_slot)
    unreferred_.erase(e.slot);
  return e.slot != no_slot || e.lower.place != LowerCopy::Place::none;
}

void PieceStore::place(const PieceKey& key, std::uint32_t slot) {
  Entry& e = known(key);
  BILLOW_CHECK(e.references > 0 && e.slot == no_slot,
               "a piece is placed once, while it is referred to");
  e.slot = slot;
  e.filled = false;
}

void PieceStore::filled(const PieceKey& key) {
  if (const auto e = entries_.find(key); e != entries_.end())
    e->second.filled = true;
}

void PieceStore::unrefer(const PieceKey& key, Freed& freed) {
  Entry& e = known(key);
  BILLOW_CHECK(e.references > 0, "a piece is let go as often as it was referred to");
  if (--e.references > 0)
    return;
  if (e.slot != no_slot && (e.filled || e.spilling)) {
    unreferred_[e.slot] = key;
    if (!e.spilling)
      drop_lower(e, freed);
    return;
  }
  if (e.spilling || e.loading)
    return;  // its end finds that nothing refers to it
  if (e.slot != no_slot)
    freed.slots.push_back(e.slot);  // what was to be copied into it never arrived
  drop_lower(e, freed);
  entries_.erase(key);
}

void PieceStore::evict(std::size_t count, Freed& freed) {
  std::size_t n = 0;
  for (auto u = unreferred_.begin(); u != unreferred_.end() && n < count;) {
    Entry& entry = known(u->second);
    if (!entry.idle()) {
      ++u;
      continue;
    }
    freed.slots.push_back(u->first);
    drop_lower(entry, freed);
    n++;
    entries_.erase(u->second);
    u = unreferred_.erase(u);
  }
}

void PieceStore::clear(Freed& freed) {
  for (auto e = entries_.begin(); e != entries_.end();) {
    if (e->second.spilling || e->second.loading) {
      e->second.references = e->second.pins = 0;
      e->second.cleared = true;
      ++e;
      continue;
    }
    if (e->second.slot != no_slot)
      freed.slots.push_back(e->second.slot);
    drop_lower(e->second, freed);
    e = entries_.erase(e);
  }
  unreferred_.clear();
  for (const auto& [key, entry] : entries_)
    if (entry.slot != no_slot)
      unreferred_[entry.slot] = key;
}

std::uint32_t PieceStore::slot(const PieceKey& key) const {
  const auto e = entries_.find(key);
  return e == entries_.end() ? no_slot : e->second.slot;
}

LowerCopy PieceStore::lower(const PieceKey& key) const {
  const auto e = entries_.find(key);
  return e == entries_.end() ? LowerCopy{} : e->second.lower;
}

void PieceStore::pin(const PieceKey& key) {
  if (const auto e = entries_.find(key); e != entries_.end())
    e->second.pins++;
}

void PieceStore::unpin(const PieceKey& key) {
  if (const auto e = entries_.find(key); e != entries_.end() && e->second.pins)
    e->second.pins--;
}

std::vector<PieceKey> PieceStore::begin_spill(std::size_t count, bool from_memory) {
  std::vector<PieceKey> out;
  for (auto& [key, e] : entries_) {
    if (out.size() == count)
      break;
    const bool may = from_memory ? e.references && e.slot == no_slot && e.idle() &&
                                       e.lower.place == LowerCopy::Place::memory
                                 : e.can_leave_slot();
    if (!may)
      continue;
    e.spilling = true;
    out.push_back(key);
  }
  return out;
}

void PieceStore::end_spill(const PieceKey& key,
                           const LowerCopy& made,
                           bool from_memory,
                           Freed& freed) {
  Entry& e = known(key);
  e.spilling = false;
  const bool fresh = made.place != LowerCopy::Place::none;
  if (!e.references) {  // the job resumed or ended meanwhile
    if (fresh)
      freed.lower.push_back(made);
    drop_lower(e, freed);
    if (e.loading || (e.slot != no_slot && !e.cleared))
      return;  // the end of the load forgets it; or it is like any slot that nothing refers to
    if (e.slot != no_slot) {  // nobody looks here for slots any more
      freed.slots.push_back(e.slot);
      unreferred_.erase(e.slot);
    }
    entries_.erase(key);
    return;
  }
  if (e.pins) {
    if (fresh)
      freed.lower.push_back(made);
    return;
  }
  if (fresh) {
    drop_lower(e, freed);
    e.lower = made;
  }
  if (!from_memory && e.lower.place != LowerCopy::Place::none) {
    freed.slots.push_back(e.slot);
    e.slot = no_slot;
    e.filled = false;
  }
}

std::vector<PieceKey> PieceStore::without_slot(std::size_t count) const {
  std::vector<PieceKey> out;
  for (const auto& [key, e] : entries_) {
    if (out.size() == count)
      break;
    if (e.references && e.slot == no_slot && e.idle() && e.lower.place != LowerCopy::Place::none)
      out.push_back(key);
  }
  return out;
}

bool PieceStore::begin_load(const PieceKey& key) {
  const auto e = entries_.find(key);
  if (e == entries_.end() || e->second.slot != no_slot || e->second.loading ||
      e->second.lower.place == LowerCopy::Place::none)
    return false;
  return e->second.loading = true;
}

void PieceStore::end_load(const PieceKey& key, std::uint32_t slot, Freed& freed) {
  Entry& e = known(key);
  e.loading = false;
  if (!e.references) {  // the job ended meanwhile
    if (slot != no_slot)
      freed.slots.push_back(slot);
    if (e.spilling)
      return;
    drop_lower(e, freed);
    entries_.erase(key);
    return;
  }
  if (slot == no_slot)
    return;
  e.slot = slot;
  e.filled = true;
  // A copy in memory would cost memory twice. One on disk stays until the job has its memory back
  // and verified.
  if (e.lower.place == LowerCopy::Place::memory && !e.spilling)
    drop_lower(e, freed);
}

bool PieceStore::loading(const PieceKey& key) const {
  const auto e = entries_.find(key);
  return e != entries_.end() && e->second.loading;
}

void PieceStore::distrust(const PieceKey& key, Freed& freed) {
  const auto e = entries_.find(key);
  if (e == entries_.end() || e->second.slot == no_slot || !e->second.references ||
      !e->second.idle() || e->second.lower.place == LowerCopy::Place::none)
    return;
  freed.slots.push_back(e->second.slot);
  e->second.slot = no_slot;
  e->second.filled = false;
}

PieceStore::Amounts PieceStore::amounts() const {
  Amounts out;
  for (const auto& [key, e] : entries_) {
    if (!e.references)
      continue;
    if (e.slot != no_slot)
      out.arena += key.bytes;
    else if (e.lower.place == LowerCopy::Place::memory)
      out.memory += key.bytes;
    else if (e.lower.place == LowerCopy::Place::file)
      out.file += key.bytes;
    if (e.lower.place == LowerCopy::Place::memory)
      out.memory_stored += e.lower.bytes;
    if (e.lower.place == LowerCopy::Place::file)
      out.file_stored += e.lower.bytes;
  }
  return out;
}

}  // namespace billow::gpumem
