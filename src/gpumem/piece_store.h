// The pieces that one job has in the arena, by content. Pure bookkeeping: the caller takes and
// gives back the slots.
//
// A piece is identified by its 128-bit hash and size. It stays while an image refers to it. After a
// resume nothing refers to it, but it is kept until the space is needed, because the next suspend
// need not copy a piece that is already here. Contents are never shared between jobs: a hit would
// reveal to one tenant what another holds.
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
  std::uint32_t slot = no_slot;
  bool zero = false;
  bool referred = false;  // the store counts this image's reference
};

class PieceStore {
 public:
  // Adds a reference to a piece of this content. Returns its slot, or no_slot if it is new; the
  // caller then provides one with `place`.
  std::uint32_t refer(const PieceKey& key);
  void place(const PieceKey& key, std::uint32_t slot);
  void unrefer(const PieceKey& key);
  // Forgets at most `count` pieces without references and returns their slots.
  std::vector<std::uint32_t> evict(std::size_t count);
  std::vector<std::uint32_t> clear();
  std::size_t pieces() const { return entries_.size(); }
  std::size_t unreferred() const { return unreferred_; }

 private:
  struct Entry {
    std::uint32_t slot = no_slot, references = 0;
  };
  std::unordered_map<PieceKey, Entry, PieceKeyHash> entries_;
  std::size_t unreferred_ = 0;
};

}  // namespace billow::gpumem
