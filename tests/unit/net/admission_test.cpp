// Places of a server whose connections belong to several loops.
#include <gtest/gtest.h>

#include <thread>

#include "net/http/admission.h"

namespace billow::net {
namespace {

const SteadyTime now{1'000'000'000};

std::shared_ptr<Admission> admission(std::size_t connections_max) {
  ServerLimits limits;
  limits.per_peer.connections_max = connections_max;
  return std::make_shared<Admission>(limits, Admission::Threads::several);
}

TEST(Admission, ThePlaceOfAConnectionThatItsLoopWillDropIsFreeAtOnce) {
  const auto server = admission(1);
  int dropped = 0;
  auto first = server->enter({"198.51.100.7", false}, now);
  first->wait_with([&] { ++dropped; });  // posted to its loop, which has not come to it yet
  auto second = server->enter({"198.51.100.7", false}, now);
  ASSERT_TRUE(second);
  EXPECT_EQ(dropped, 1);
  EXPECT_EQ(server->connections(), 1u);
  EXPECT_FALSE(server->enter({"198.51.100.7", false}, now)) << "the second does not wait";
  EXPECT_EQ(dropped, 1) << "nobody is dropped for nothing";
  first->stay();
  EXPECT_EQ(server->connections(), 2u) << "it got a request before its loop dropped it";
  first.reset();
  second.reset();
  EXPECT_EQ(server->connections(), 0u);
}

TEST(Admission, ManyThreadsLeaveNothingBehind) {
  const auto server = admission(4);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int turn = 0; turn < 500; ++turn) {
        const auto place = server->enter({"198.51.100.7", false}, now);
        if (!place)
          continue;
        place->wait_with([] {});
        place->engage();
        place->end();
        place->detach();
      }
    });
  for (auto& thread : threads)
    thread.join();
  EXPECT_EQ(server->connections(), 0u);
}

}  // namespace
}  // namespace billow::net
