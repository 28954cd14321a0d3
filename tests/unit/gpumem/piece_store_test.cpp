// The arena and the piece store: nothing is lost, nothing leaks from one tenant to another.
#include "gpumem/piece_store.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "gpumem/arena.h"

namespace billow::gpumem {
namespace {

std::unique_ptr<Arena> arena(std::uint64_t slots) {
  auto made = Arena::create({slots * Arena::slot_bytes, 1, {}});
  EXPECT_TRUE(made.has_value());
  EXPECT_TRUE((*made)->wait_ready(slots * Arena::slot_bytes, 30000));
  return std::move(*made);
}

TEST(Arena, GivesOutEverySlotOnce) {
  auto a = arena(16);
  auto x = a->take(1, 10), y = a->take(2, 6);
  std::set<std::uint32_t> all(x.begin(), x.end());
  all.insert(y.begin(), y.end());
  EXPECT_EQ(all.size(), 16u);
  EXPECT_TRUE(a->take(3, 1).empty());
  a->give(1, x);
  EXPECT_EQ(a->take(3, 10).size(), 10u);
}

TEST(Arena, AnotherTenantNeverSeesOldContent) {
  auto a = arena(4);
  for (std::uint32_t slot : a->take(1, 4))
    std::memset(a->at(slot), 0xee, Arena::slot_bytes);
  a->give(1, {0, 1, 2, 3});
  for (std::uint32_t slot : a->take(2, 4))
    for (std::uint64_t i = 0; i < Arena::slot_bytes; i += 64)
      ASSERT_EQ(a->at(slot)[i], 0);
}

TEST(Arena, FreeingAForeignSlotChangesNothing) {
  auto a = arena(4);
  const auto mine = a->take(1, 2);
  a->give(2, mine);
  a->give(1, {99, 100});
  EXPECT_EQ(a->free_slots(), 2u);
}

TEST(Arena, ReservesNoMoreThanItHas) {
  auto a = arena(8);
  EXPECT_TRUE(a->reserve(1, 5 * Arena::slot_bytes));
  EXPECT_FALSE(a->reserve(2, 4 * Arena::slot_bytes));
  EXPECT_TRUE(a->reserve(1, 6 * Arena::slot_bytes));  // the same tenant again replaces
  a->unreserve(1);
  EXPECT_TRUE(a->reserve(2, 8 * Arena::slot_bytes));
}

// A copy fills or empties neighbouring slots; two mebibytes each time would cost 5 % of the link.
TEST(PieceStore, SlotsThatAreNeededAreTakenInARow) {
  PieceStore s;
  Freed freed;
  for (std::uint32_t i = 0; i < 1000; i++) {
    const PieceKey key{i * 0x9e3779b97f4a7c15u, i, 2u << 20};
    EXPECT_FALSE(s.refer(key));
    s.place(key, i);
    s.filled(key);
    s.unrefer(key, freed);
  }
  for (std::uint32_t at = 0; at < 1000; at += 250) {
    s.evict(250, freed);
    ASSERT_EQ(freed.slots.size(), 250u);
    for (std::uint32_t i = 0; i < 250; i++)
      ASSERT_EQ(freed.slots[i], at + i);
    freed.slots.clear();
  }
}

TEST(PieceStore, KeepsWhatIsReferredToAndForgetsTheRest) {
  PieceStore s;
  Freed freed;
  const PieceKey a{1, 2, 3}, b{4, 5, 6};
  EXPECT_FALSE(s.refer(a));
  s.place(a, 7);
  s.filled(a);
  EXPECT_TRUE(s.refer(a));
  EXPECT_EQ(s.slot(a), 7u);
  EXPECT_FALSE(s.refer(b));
  s.unrefer(b, freed);  // never placed: gone
  EXPECT_EQ(s.pieces(), 1u);
  s.unrefer(a, freed);
  s.evict(10, freed);
  EXPECT_TRUE(freed.slots.empty());
  s.unrefer(a, freed);
  EXPECT_EQ(s.unreferred(), 1u);
  EXPECT_TRUE(s.refer(a));  // unchanged since: no copy
  s.unrefer(a, freed);
  s.evict(10, freed);
  EXPECT_EQ(freed.slots, std::vector<std::uint32_t>{7});
  EXPECT_EQ(s.pieces(), 0u);
}

TEST(PieceHash, DependsOnEveryByteAndItsPlace) {
  std::vector<unsigned char> data(64 << 10, 0);
  billow_piece_hash zero, other;
  billow_hash_piece(data.data(), data.size(), &zero);
  EXPECT_EQ(zero.any, 0u);
  std::set<std::pair<std::uint64_t, std::uint64_t>> seen{{zero.low, zero.high}};
  for (std::size_t at = 0; at < data.size(); at += 509) {
    data[at] = 1;
    billow_hash_piece(data.data(), data.size(), &other);
    EXPECT_NE(other.any, 0u);
    EXPECT_TRUE(seen.insert({other.low, other.high}).second) << at;
    data[at] = 0;
  }
}

}  // namespace
}  // namespace billow::gpumem
