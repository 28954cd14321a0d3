// The tiers below the arena: policy, storage and the movement between them.
#include "gpumem/tiers.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <random>

namespace billow::gpumem {
namespace {

constexpr std::uint32_t piece_bytes = static_cast<std::uint32_t>(Arena::slot_bytes);
using Place = LowerCopy::Place;

TEST(SleepPolicy, CompressesOnlyWhereItIsFasterThanTheDisk) {
  const Rates slow_disk{
      .gpu = 50e9, .memory = 20e9, .write = 1e9, .read = 1e9, .pack = 4e9, .unpack = 8e9};
  EXPECT_TRUE(packs_for_disk(slow_disk, 0.6));
  EXPECT_FALSE(packs_for_disk(slow_disk, 0.97));
  Rates fast_disk = slow_disk;
  fast_disk.read = 12e9;
  EXPECT_FALSE(packs_for_disk(fast_disk, 0.6));
  EXPECT_FALSE(packs_for_memory(fast_disk, 0.6, true));
  EXPECT_TRUE(packs_for_memory(slow_disk, 0.6, true));
  EXPECT_TRUE(packs_for_memory(fast_disk, 0.6, false));  // or it could not be kept at all
  EXPECT_FALSE(packs_for_disk({}, 0.1));                 // nothing is known
}

TEST(SleepPolicy, TheOldestGoesDownFirstAndTheMostWokenComesUpFirst) {
  const std::vector<Sleeper> all{{1, 300, 0}, {2, 100, 3}, {3, 200, 1}, {4, 400, 3}};
  EXPECT_EQ(spill_order(all), (std::vector<std::uint64_t>{2, 3, 1, 4}));
  EXPECT_EQ(wake_order(all), (std::vector<std::uint64_t>{4, 2, 3}));
  EXPECT_DOUBLE_EQ(faded(4, 3'600'000'000'000), 2);
}

TEST(SleepPolicy, WakingCostsWhatTheSlowestPartCosts) {
  const Rates r{.gpu = 50e9, .memory = 20e9, .write = 1e9, .read = 2e9, .pack = 4e9, .unpack = 8e9};
  EXPECT_DOUBLE_EQ(wake_seconds(r, {.arena = 50'000'000'000}), 1);
  EXPECT_DOUBLE_EQ(wake_seconds(r, {.memory = 40'000'000'000, .memory_stored = 40'000'000'000}), 2);
  EXPECT_DOUBLE_EQ(wake_seconds(r, {.file = 8'000'000'000, .file_stored = 8'000'000'000}), 4);
  EXPECT_DOUBLE_EQ(wake_seconds(r, {.file = 8'000'000'000, .file_stored = 1'000'000'000}), 1);
}

struct Place2Mib {
  alignas(4096) char bytes[piece_bytes];
};
std::unique_ptr<Place2Mib> pattern(std::uint64_t seed, bool compressible) {
  auto out = std::make_unique<Place2Mib>();
  std::mt19937_64 random(seed);
  for (std::size_t i = 0; i < piece_bytes; i += 8) {
    const std::uint64_t word = compressible ? seed + i / 4096 : random();
    std::memcpy(out->bytes + i, &word, 8);
  }
  return out;
}
PieceKey key_of(const char* data) {
  billow_piece_hash h;
  billow_hash_piece(data, piece_bytes, &h);
  return {h.low, h.high, piece_bytes};
}

class Below : public testing::Test {
 protected:
  void SetUp() override {
    char made[] = "/tmp/billow-tiers-XXXXXX";
    dir_ = mkdtemp(made);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  std::unique_ptr<LowerTiers> lower(std::uint64_t memory_mib, std::uint64_t file_mib) {
    return std::make_unique<LowerTiers>(
        LowerTiers::Options{memory_mib << 20, dir_ + "/sleep", file_mib << 20, 2});
  }
  static bool measured(const LowerTiers& tiers) {
    for (int i = 0; i < 3000 && tiers.rates().unpack <= 0; i++)
      usleep(10000);
    return tiers.rates().unpack > 0;
  }
  std::string dir_;
};

TEST_F(Below, WhatIsStoredComesBackAndItsSpaceIsGivenBack) {
  auto tiers = lower(64, 64);
  EXPECT_TRUE(measured(*tiers));
  EXPECT_GT(tiers->rates().read, 0);
  EXPECT_EQ(tiers->file_used(), 0u);  // nothing is left of the measurement
  auto back = std::make_unique<Place2Mib>();
  for (const bool compressible : {false, true})
    for (const Place place : {Place::memory, Place::file}) {
      const auto data = pattern(7, compressible);
      const auto copy = tiers->store(1, data->bytes, piece_bytes, place);
      ASSERT_TRUE(copy.has_value());
      EXPECT_EQ(copy->place, place);
      EXPECT_TRUE(compressible || !copy->packed);
      ASSERT_TRUE(tiers->load(1, *copy, back->bytes, piece_bytes).has_value());
      EXPECT_EQ(std::memcmp(data->bytes, back->bytes, piece_bytes), 0);
      if (place == Place::memory) {
        const auto sunk = tiers->sink(1, *copy);
        ASSERT_TRUE(sunk.has_value());
        std::memset(back->bytes, 0, piece_bytes);
        ASSERT_TRUE(tiers->load(1, *sunk, back->bytes, piece_bytes).has_value());
        EXPECT_EQ(std::memcmp(data->bytes, back->bytes, piece_bytes), 0);
        tiers->release(1, *sunk);
      }
      tiers->release(1, *copy);
    }
  EXPECT_EQ(tiers->memory_used(), 0u);
  EXPECT_EQ(tiers->file_used(), 0u);
  EXPECT_TRUE(std::filesystem::is_empty(dir_ + "/sleep"));  // its files have no names
}

TEST_F(Below, LimitsHold) {
  auto tiers = lower(4, 4);
  const auto data = pattern(1, false);
  std::vector<LowerCopy> kept;
  for (const Place place : {Place::memory, Place::file}) {
    for (int i = 0; i < 2; i++) {
      auto copy = tiers->store(1, data->bytes, piece_bytes, place);
      for (int tries = 0; !copy && tries < 1000; tries++) {  // the measurement may hold the space
        usleep(10000);
        copy = tiers->store(1, data->bytes, piece_bytes, place);
      }
      ASSERT_TRUE(copy.has_value()) << copy.error().message;
      kept.push_back(*copy);
    }
    EXPECT_FALSE(tiers->store(1, data->bytes, piece_bytes, place).has_value());
  }
  for (const LowerCopy& copy : kept)
    tiers->release(1, copy);
}

TEST_F(Below, DamagedBytesAreNotTakenForTheJobs) {
  auto tiers = lower(64, 64);
  ASSERT_TRUE(measured(*tiers));
  const auto data = pattern(3, true);
  auto copy = tiers->store(1, data->bytes, piece_bytes, Place::memory);
  ASSERT_TRUE(copy.has_value());
  LowerCopy damaged = *copy;
  damaged.packed = true;
  damaged.bytes = copy->packed ? copy->bytes / 2 : 100;
  auto back = std::make_unique<Place2Mib>();
  EXPECT_FALSE(tiers->load(1, damaged, back->bytes, piece_bytes).has_value());
  LowerCopy beyond{Place::file, false, piece_bytes, 1ull << 40};
  EXPECT_FALSE(tiers->load(1, beyond, back->bytes, piece_bytes).has_value());
  tiers->release(1, *copy);
}

// A library whose jobs' pieces are made here, as a suspend would.
class Moving : public Below {
 protected:
  void make(std::size_t slots, std::uint64_t memory_mib, std::uint64_t file_mib) {
    auto made = Arena::create({slots * Arena::slot_bytes, 1, {}});
    ASSERT_TRUE(made.has_value());
    arena_ = std::move(*made);
    ASSERT_TRUE(arena_->wait_ready(slots * Arena::slot_bytes, 30000));
    lower_ = lower(memory_mib, file_mib);
    library_.arena = arena_.get();
    library_.lower = lower_.get();
    library_.staging_slots = slots / 8;
    tiers_ = std::make_unique<Tiers>(&library_);
  }
  void TearDown() override {
    tiers_.reset();
    Below::TearDown();
  }
  bool suspend(std::uint64_t tenant, int pieces, int timeout_ms = 20000) {
    {
      const std::lock_guard guard(library_.lock);
      if (!library_.stores[tenant])
        library_.stores[tenant] = std::make_shared<PieceStore>();
    }
    tiers_->asleep(tenant);
    for (int i = 0; i < pieces; i++) {
      const auto data = pattern(tenant * 1000 + static_cast<std::uint64_t>(i), i % 2 == 1);
      const PieceKey key = key_of(data->bytes);
      const auto slot = library_.take(tenant, 1, timeout_ms);
      if (slot.empty())
        return false;
      const std::lock_guard guard(library_.lock);
      PieceStore& store = *library_.stores[tenant];
      EXPECT_FALSE(store.refer(key));
      store.place(key, slot[0]);
      std::memcpy(arena_->at(slot[0]), data->bytes, piece_bytes);
      store.filled(key);
      keys_[tenant].push_back(key);
    }
    return true;
  }
  void resume(std::uint64_t tenant) {
    for (std::size_t i = 0; i < keys_[tenant].size(); i++) {
      const PieceKey key = keys_[tenant][i];
      ASSERT_TRUE(tiers_->raise(tenant, {key}, 20000).has_value());
      const std::lock_guard guard(library_.lock);
      PieceStore& store = *library_.stores[tenant];
      ASSERT_NE(store.slot(key), no_slot);
      EXPECT_EQ(key_of(arena_->at(store.slot(key))), key);
      store.unpin(key);
      Freed freed;
      store.unrefer(key, freed);
      library_.give(tenant, freed);
    }
    keys_.erase(tenant);
    tiers_->awake(tenant, true);
  }
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<LowerTiers> lower_;
  Library library_;
  std::unique_ptr<Tiers> tiers_;
  std::map<std::uint64_t, std::vector<PieceKey>> keys_;
};

TEST_F(Moving, HoldsSeveralTimesTheArenaAndGivesEveryBitBack) {
  make(16, 16, 128);
  for (std::uint64_t tenant = 1; tenant <= 5; tenant++)
    ASSERT_TRUE(suspend(tenant, 10));
  EXPECT_GT(lower_->memory_used() + lower_->file_used(), 10u << 20);
  EXPECT_GT(tiers_->amounts(1).file, 0u);
  for (std::uint64_t tenant : {3, 1, 5, 2, 4})
    resume(tenant);
  EXPECT_EQ(lower_->file_used(), 0u);
  EXPECT_EQ(lower_->memory_used(), 0u);
}

TEST_F(Moving, WithoutSpaceBelowNothingLeavesTheArena) {
  make(16, 0, 4);
  EXPECT_FALSE(suspend(1, 30, 300));
  const auto before = keys_[1].size();
  EXPECT_GE(before, 12u);
  resume(1);
}

TEST_F(Moving, AJobThatEndsWhileItMovesGivesEverythingBack) {
  make(16, 8, 64);
  for (int round = 0; round < 20; round++) {
    const std::uint64_t tenant = 100 + static_cast<std::uint64_t>(round);
    ASSERT_TRUE(suspend(tenant, 14));
    keys_.erase(tenant);
    tiers_->forget(tenant);
    const std::lock_guard guard(library_.lock);
    Freed freed;
    library_.stores[tenant]->clear(freed);
    library_.give(tenant, freed);
    lower_->forget(tenant);
    library_.stores.erase(tenant);
  }
  for (int i = 0; i < 1000 && arena_->free_slots() != 16; i++)
    usleep(10000);
  EXPECT_EQ(arena_->free_slots(), 16u);
  EXPECT_EQ(lower_->memory_used(), 0u);
  EXPECT_EQ(lower_->file_used(), 0u);
}

// Each step of a spill and of a load, met by a resume or an end of the job.
TEST(PieceStoreTiers, WhatIsNeededAgainStaysAndNothingIsFreedTwice) {
  const PieceKey key{1, 2, 3};
  const LowerCopy memory{Place::memory, false, 3, 77}, file{Place::file, false, 3, 99};
  for (int event = 0; event < 5; event++) {
    PieceStore s;
    Freed freed;
    EXPECT_FALSE(s.refer(key));
    s.place(key, 7);
    EXPECT_TRUE(s.begin_spill(9, false).empty());  // not filled yet
    s.filled(key);
    EXPECT_EQ(s.begin_spill(9, false).size(), 1u);
    EXPECT_TRUE(s.begin_spill(9, false).empty());  // once
    if (event == 1)
      s.pin(key);
    if (event == 2)
      s.unrefer(key, freed);
    if (event == 3)
      s.clear(freed);
    EXPECT_TRUE(freed.slots.empty());
    s.evict(9, freed);
    EXPECT_TRUE(freed.slots.empty());  // somebody reads it
    s.end_spill(key, event == 4 ? LowerCopy{} : memory, false, freed);
    if (event == 0) {
      EXPECT_EQ(freed.slots, std::vector<std::uint32_t>{7});
      EXPECT_EQ(s.slot(key), no_slot);
      EXPECT_EQ(s.begin_spill(9, true).size(), 1u);
      s.end_spill(key, file, true, freed);
      ASSERT_EQ(freed.lower.size(), 1u);
      EXPECT_EQ(freed.lower[0].at, 77u);
      EXPECT_TRUE(s.begin_load(key));
      EXPECT_FALSE(s.begin_load(key));
      s.end_load(key, 8, freed);
      EXPECT_EQ(s.slot(key), 8u);
      EXPECT_EQ(s.lower(key).at, 99u);  // until the job has it back
      s.distrust(key, freed);
      EXPECT_EQ(s.slot(key), no_slot);
      s.unrefer(key, freed);
      EXPECT_EQ(freed.slots, (std::vector<std::uint32_t>{7, 8}));
      EXPECT_EQ(freed.lower.size(), 2u);
      EXPECT_EQ(s.pieces(), 0u);
      continue;
    }
    EXPECT_EQ(freed.lower.size(), event == 4 ? 0u : 1u);  // the new copy is not needed
    if (event == 3) {  // the job's store is gone: nobody would look there for the slot
      EXPECT_EQ(freed.slots, std::vector<std::uint32_t>{7});
      EXPECT_EQ(s.unreferred(), 0u);
      EXPECT_EQ(s.pieces(), 0u);
      continue;
    }
    EXPECT_TRUE(freed.slots.empty());
    EXPECT_EQ(s.slot(key), 7u);
    if (event == 1 || event == 4) {
      s.unpin(key);
      s.unrefer(key, freed);
    }
    EXPECT_EQ(s.unreferred(), 1u);
    s.evict(9, freed);
    EXPECT_EQ(freed.slots, std::vector<std::uint32_t>{7});
    EXPECT_EQ(s.pieces(), 0u);
  }
}

// A piece can be loaded while it moves from memory to the file; then the job ends.
TEST(PieceStoreTiers, AJobThatEndsWhileAPieceMovesUpAndDownForgetsItOnce) {
  const PieceKey key{1, 2, 3};
  for (const bool load_ends_first : {false, true}) {
    PieceStore s;
    Freed freed;
    s.refer(key);
    s.place(key, 7);
    s.filled(key);
    s.begin_spill(9, false);
    s.end_spill(key, {Place::memory, false, 3, 77}, false, freed);
    EXPECT_EQ(s.begin_spill(9, true).size(), 1u);
    EXPECT_TRUE(s.begin_load(key));
    s.clear(freed);
    for (const bool load : {load_ends_first, !load_ends_first})
      load ? s.end_load(key, 8, freed) : s.end_spill(key, {Place::file, false, 3, 99}, true, freed);
    EXPECT_EQ(freed.slots, (std::vector<std::uint32_t>{7, 8}));
    EXPECT_EQ(freed.lower.size(), 2u);
    EXPECT_EQ(s.pieces(), 0u);
  }
}

TEST(PieceStoreTiers, ACopyThatNeverArrivedIsNotKept) {
  PieceStore s;
  Freed freed;
  const PieceKey key{1, 2, 3};
  EXPECT_FALSE(s.refer(key));
  s.place(key, 7);
  s.unrefer(key, freed);
  EXPECT_EQ(freed.slots, std::vector<std::uint32_t>{7});
  EXPECT_FALSE(s.refer(key));  // it must be copied again
}

}  // namespace
}  // namespace billow::gpumem
