// Requests of one sender get one replica, bounded by load and health; and what a gateway tells its
// successor.
#include <gtest/gtest.h>

#include <map>

#include "gateway/pure/key_meter.h"
#include "gateway/pure/router.h"
#include "gateway/pure/sample.h"

namespace billow::gateway {
namespace {

constexpr SteadyTime now{1'000'000'000};
constexpr SteadyTime later{60'000'000'000};

struct StickyStage {
  Router router{{.concurrency = 4, .queue_max = 10}};
  RequestId last = 0;
  explicit StickyStage(std::uint32_t replicas) {
    for (ReplicaKey key = 1; key <= replicas; ++key)
      router.set_phase(key, Phase::ready, now);
    router.spread_over(replicas);
  }
  ReplicaKey ask(Wish wish) {
    const auto answer = router.arrive(++last, now, later, 0, wish);
    return answer.verdict == Router::Verdict::go ? answer.replica : 0;
  }
  ReplicaKey serve(Wish wish) {  // and end at once
    const ReplicaKey to = ask(wish);
    router.finished(to, now);
    return to;
  }
};

std::map<std::uint64_t, ReplicaKey> homes(StickyStage& stage) {
  std::map<std::uint64_t, ReplicaKey> out;
  for (std::uint64_t sender = 1; sender <= 1000; ++sender)
    out[sender] = stage.serve({.sender = sender});
  return out;
}

TEST(Sticky, SendersKeepTheirReplicaAndOnlyThoseOfOneThatLeavesMove) {
  StickyStage stage(4);
  const auto before = homes(stage);
  std::map<ReplicaKey, int> count;
  for (const auto& [sender, home] : before)
    ++count[home];
  ASSERT_EQ(count.size(), 4u);
  for (const auto& [key, n] : count)
    EXPECT_GT(n, 180) << key;  // 250 in the mean
  EXPECT_EQ(homes(stage), before);
  stage.router.set_phase(2, Phase::leaving, now);
  for (const auto& [sender, home] : homes(stage)) {
    EXPECT_NE(home, 2u);
    EXPECT_TRUE(before.at(sender) == 2 || home == before.at(sender)) << sender;
  }
  stage.router.set_phase(2, Phase::ready, now);
  EXPECT_EQ(homes(stage), before);
}

TEST(Sticky, ReplicasThatTheLoadDoesNotNeedGetNoSenders) {
  StickyStage stage(4);
  stage.router.spread_over(2);
  for (const auto& [sender, home] : homes(stage))
    EXPECT_LE(home, 2u);
}

TEST(Sticky, AFullOrMuchBusierReplicaIsLeftForAnother) {
  StickyStage stage(2);
  const ReplicaKey home = stage.serve({.sender = 7});
  std::map<ReplicaKey, int> got;
  for (int i = 0; i < 8; ++i)
    ++got[stage.ask({.sender = 7})];
  EXPECT_EQ(got[home], 4);
  EXPECT_EQ(got[3 - home], 4);
  EXPECT_EQ(stage.ask({.sender = 7}), 0u) << "then they wait";
}

TEST(Sticky, ANamedReplicaIsKeptWhateverTheLoadNeeds) {
  StickyStage stage(4);
  stage.router.spread_over(1);
  EXPECT_EQ(stage.serve({.replica = 3}), 3u);
  EXPECT_EQ(stage.serve({.replica = 99}), 1u) << "one that is gone is no wish";
  stage.router.set_phase(3, Phase::suspended, now);
  EXPECT_EQ(stage.serve({.replica = 3}), 1u);
}

TEST(Sticky, CanaryAndOldRevisionKeepTheirOwn) {
  StickyStage stage(4);
  for (const ReplicaKey key : {3u, 4u}) {
    stage.router.find(key)->current = false;
    stage.router.find(key)->canary = true;
  }
  for (std::uint64_t sender = 1; sender < 50; ++sender) {
    const ReplicaKey old = stage.serve({.sender = sender});
    const ReplicaKey canary = stage.serve({.canary = true, .sender = sender});
    EXPECT_LE(old, 2u);
    EXPECT_GE(canary, 3u);
    EXPECT_EQ(stage.serve({.canary = true, .sender = sender}), canary);
  }
}

TEST(Successor, CountsTheRequestsOfItsPredecessor) {
  StickyStage stage(1);
  stage.router.predecessor_has({{1, 3}}, now);
  EXPECT_FALSE(Router::releasable(*stage.router.find(1)));
  EXPECT_EQ(stage.ask({}), 1u);
  EXPECT_EQ(stage.ask({}), 0u) << "its four slots are taken";
  stage.router.predecessor_has({{1, 1}}, now);
  EXPECT_EQ(stage.router.dispatch(now).size(), 1u);
  stage.router.predecessor_has({}, now);
  stage.router.finished(1, now);
  stage.router.finished(1, now);
  EXPECT_TRUE(Router::releasable(*stage.router.find(1)));
}

TEST(Successor, AddsWhatKeysHaveUsedAtItsPredecessor) {
  const EndpointPrices prices{.request = {10'000'000}};
  const std::vector<KeyLimit> limits = {
      {.of = LimitOf::usd, .per = LimitPer::day, .amount = 50'000'000}};
  const WallTime wall{1'700'000'000'000'000'000};
  KeyMeter old, fresh;
  KeyMeter::Reserved reserved;
  const auto one = [&](KeyMeter& meter) {
    if (meter.begin(limits, prices, {}, wall, reserved))
      return false;
    meter.end(reserved, prices, {}, wall);
    return true;
  };
  EXPECT_TRUE(one(old));
  const auto handed = old.saved();
  fresh.restore(handed);
  EXPECT_TRUE(one(old));
  EXPECT_TRUE(one(old));
  EXPECT_TRUE(one(fresh));
  auto heard = used_between(handed, old.saved());
  fresh.add(heard);
  EXPECT_TRUE(one(fresh));  // the fifth cent of five
  EXPECT_FALSE(one(fresh));
  fresh.add(used_between(heard, used_between(handed, old.saved())));  // nothing new
  EXPECT_EQ(fresh.days().back().counts.charge.value, 50'000'000);
  EXPECT_EQ(fresh.days().back().counts.requests, 5u);
}

TEST(Sample, KeepsTheBeginningOfABodyAndNoCredentials) {
  Sample::Side side;
  for (int i = 0; i < 20; ++i)
    side.add(std::string(5000, 'x'));
  EXPECT_EQ(side.body.size(), Sample::body_bytes_max);
  EXPECT_EQ(side.bytes, 100'000u);
  for (const char* name : {"Content-Type", "USER-AGENT", "accept"})
    EXPECT_TRUE(sampled_field(name)) << name;
  for (const char* name : {"Authorization", "Cookie", "X-Api-Key", "X-Anything", ""})
    EXPECT_FALSE(sampled_field(name)) << name;
  std::string text = "my key is bwk_aB-9_z, and bwk_";
  blank_keys(text);
  EXPECT_EQ(text, "my key is bwk_******, and bwk_");
}

}  // namespace
}  // namespace billow::gateway
