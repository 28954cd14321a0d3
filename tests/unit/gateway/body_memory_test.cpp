// Who gets how much of the memory for bodies.
#include "gateway/pure/body_memory.h"

#include <gtest/gtest.h>

namespace billow::gateway {
namespace {

constexpr std::size_t body = 1 << 20;

std::size_t take_all(BodyMemory& memory, const BodyParty& party) {
  std::size_t taken = 0;
  while (memory.take(party, body, false))
    taken += body;
  return taken;
}

TEST(BodyMemory, AStrangerGetsAnEighth) {
  BodyMemory memory;
  EXPECT_EQ(take_all(memory, {"203.0.113.7", false}), BodyMemory::bytes_max / 8);
  EXPECT_TRUE(memory.take({"203.0.113.8", false}, 8 * body, false)) << "others are not blocked";
}

TEST(BodyMemory, StrangersLeaveTheHalfOfTheKnownAlone) {
  BodyMemory memory;
  std::size_t all = 0;
  for (int i = 0; i < 1000; ++i)
    all += take_all(memory, {"stranger" + std::to_string(i), false});
  EXPECT_LE(all, BodyMemory::half_bytes_max);
  EXPECT_TRUE(memory.take({"a key", true}, 8 * body, false));
}

TEST(BodyMemory, NobodyTakesMoreThanIsLeftForOthers) {
  BodyMemory memory;
  for (int i = 0; i < 4; ++i)
    EXPECT_GT(take_all(memory, {"key" + std::to_string(i), true}), 0U) << i;
  EXPECT_TRUE(memory.take({"newcomer", true}, body, false));
}

TEST(BodyMemory, OneKeyAloneServesManyUsers) {
  BodyMemory memory;
  EXPECT_EQ(take_all(memory, {"key", true}), BodyMemory::half_bytes_max / 2);
}

TEST(BodyMemory, IsGivenBack) {
  BodyMemory memory;
  const BodyParty stranger{"203.0.113.7", false};
  for (int i = 0; i < 3; ++i) {
    const std::size_t taken = take_all(memory, stranger);
    EXPECT_EQ(taken, BodyMemory::stranger_bytes_max);
    memory.give_back(stranger, taken);
  }
  memory.give_back(stranger, body);
  memory.give_back({"nobody", true}, body);
  EXPECT_EQ(take_all(memory, stranger), BodyMemory::stranger_bytes_max);
}

TEST(BodyMemory, CopiesGetNoneOfTheLastPart) {
  BodyMemory memory;
  std::size_t copies = 0;
  for (int i = 0; i < 100; ++i)
    copies += memory.take({"key" + std::to_string(i), true}, body, true) ? body : 0;
  EXPECT_EQ(copies, BodyMemory::half_bytes_max / 2);
  EXPECT_TRUE(memory.take({"key", true}, body, false));
}

}  // namespace
}  // namespace billow::gateway
