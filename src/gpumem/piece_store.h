// The pieces that one job has on this node, by content. Pure bookkeeping: the caller takes and
// gives back the slots of the arena and the space below it.
//
// A piece is identified by its 128-bit hash and size. It stays while an image refers to it. After a
// resume nothing refers to it, but its slot is kept until the space is needed, because the next
// suspend need not copy a piece that is already here. Contents are never shared between jobs: a hit
// would reveal to one tenant what another holds.
//
// A piece is in a slot of the arena, in a lower tier, or in both. Whatever reads a slot or a lower
// copy without the lock pins the piece or marks it as spilling; neither goes away meanwhile.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "shim/hash.h"

namespace billow::gpumem {

inline constexpr std::uint32_t no_slot = UINT32_MAX;  // a piece of zeros, or none yet

struct PieceKey {
  std::uint64_t low = 0, high = 0;
  std::uint32_t bytes = 0;
  bool operator==(const PieceKey&) const = default;
};
struct PieceKeyHash {
  std::size_t operator()(const PieceKey& k) const {
    return static_cast<std::size_t>(k.low ^ (k.high * 31) ^ k.bytes);
  }
};

struct Piece {
  PieceKey key;
  bool zero = false;
  bool referred = false;  // the store counts this image's reference
};

// Where a piece lies below the arena.
struct LowerCopy {
  enum class Place : std::uint8_t { none, memory, file };
  Place place = Place::none;
  // Compressed, after its bytes were sorted by their place in words of this size; 0: as it is.
  std::uint8_t packed = 0;
  std::uint32_t bytes = 0;  // as stored
  std::uint64_t at = 0;     // an address, or an offset in the job's file
};

// What the caller must give back.
struct Freed {
  std::vector<std::uint32_t> slots;
  std::vector<LowerCopy> lower;
};

class PieceStore {
 public:
  // Adds a reference to a piece of this content. False: it is new; the caller then provides a slot
  // with `place`, fills it and calls `filled`.
  bool refer(const PieceKey& key);
  void place(const PieceKey& key, std::uint32_t slot);
  void filled(const PieceKey& key);
  void unrefer(const PieceKey& key, Freed& freed);
  // Forgets the slots of at most `count` pieces without references, the lowest first: neighbouring
  // slots are filled and emptied by one copy.
  void evict(std::size_t count, Freed& freed);
  // Forgets everything; pieces that are just being spilled when `end_spill` is called for them.
  void clear(Freed& freed);

  std::uint32_t slot(const PieceKey& key) const;  // no_slot: only in a lower tier
  LowerCopy lower(const PieceKey& key) const;
  void pin(const PieceKey& key);  // nothing happens if the piece is gone by now
  void unpin(const PieceKey& key);

  // Down: at most `count` pieces with references that can leave their slots, or leave `memory` for
  // the file. They are marked as spilling until `end_spill`.
  std::vector<PieceKey> begin_spill(std::size_t count, bool from_memory);
  // `made` is the new copy; Place::none: there is none, and the piece stays where it is unless it
  // already had a lower copy. A piece that is needed again by now stays, too.
  void end_spill(const PieceKey& key, const LowerCopy& made, bool from_memory, Freed& freed);
  // Up: pieces with references that have no slot and are not being loaded.
  std::vector<PieceKey> without_slot(std::size_t count) const;
  // False: it has a slot, or another thread is loading it.
  bool begin_load(const PieceKey& key);
  // no_slot: loading failed.
  void end_load(const PieceKey& key, std::uint32_t slot, Freed& freed);
  bool loading(const PieceKey& key) const;
  // The slot does not hold what was saved: forgets it if there is a lower copy to read again.
  void distrust(const PieceKey& key, Freed& freed);

  struct Amounts {
    std::uint64_t arena = 0, memory = 0, file = 0;  // bytes of pieces with references
    std::uint64_t memory_stored = 0, file_stored = 0;
  };
  Amounts amounts() const;
  std::size_t pieces() const { return entries_.size(); }
  std::size_t unreferred() const { return unreferred_.size(); }

 private:
  struct Entry {
    std::uint32_t slot = no_slot, references = 0, pins = 0;
    bool filled = false, spilling = false, loading = false;
    bool cleared = false;  // `clear` came while it was spilled: `end_spill` frees its slot
    LowerCopy lower;
    bool idle() const { return !pins && !spilling && !loading; }
    bool can_leave_slot() const { return references && filled && slot != no_slot && idle(); }
  };
  using Entries = std::unordered_map<PieceKey, Entry, PieceKeyHash>;
  Entry& known(const PieceKey& key);
  static void drop_lower(Entry& entry, Freed& freed);
  Entries entries_;
  std::map<std::uint32_t, PieceKey> unreferred_;  // by slot: entries without references
};

}  // namespace billow::gpumem
