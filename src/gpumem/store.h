// What one job has in the arena: pieces by content, and the images made of them. Pure bookkeeping;
// slots come and go through the two functions it is given.
//
// A piece is known by its 128-bit hash and size. While an image refers to it, it stays; after a
// resume nothing refers to it, but it is kept as long as nobody else needs the room, because at the
// next suspend a piece with that content need not cross the link again. Contents are never shared
// between jobs: a hit would tell one tenant what another holds.
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
  bool referred = false;  // the store counts a reference of this image to it
};

class PieceStore {
 public:
  // Refers to a piece of this content: its slot when it is known already, else no_slot, and the
  // caller brings one with `place`.
  std::uint32_t refer(const PieceKey& key);
  void place(const PieceKey& key, std::uint32_t slot);
  void unrefer(const PieceKey& key);
  // Slots of pieces nothing refers to, `count` at most; they are forgotten.
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
