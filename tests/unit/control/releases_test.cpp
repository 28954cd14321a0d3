// Canaries and keys of endpoints, as the head decides and keeps them.
#include "tests/unit/control/world.h"

namespace billow::control {
namespace {

struct Releases : testing::Test {
  World w;
  DeployEndpoint deploy{.name = "chat", .project = "default"};

  const State& state() { return w.core.state(); }
  const Endpoint& chat() { return state().endpoints.at("chat"); }
  void SetUp() override {
    w.must(AgentHello{offer("n1", 8), {}});
    deploy.user = state().users.begin()->first;
    deploy.spec.argv = {"serve"};
    deploy.policy.max = 4;
    w.must(deploy);
    w.must(JudgeRevision{"chat", 1, true, "", {}});
  }
  void start_canary() {
    deploy.release = {.traffic = 100};
    w.must(deploy);
    w.must(JudgeRevision{"chat", 2, true, "", {}});
  }
  void TearDown() override { w.check_replay(); }
};

TEST_F(Releases, ACanaryServesBesideTheOldRevisionUntilItIsPromoted) {
  start_canary();
  EXPECT_EQ(chat().serving, 1);
  EXPECT_EQ(chat().canary, 2);
  EXPECT_EQ(chat().rolling, 0);
  w.must(StartReplica{.endpoint = "chat", .revision = 2, .port = 2000});
  w.must(ChangeRelease{.endpoint = "chat", .traffic = 250});
  EXPECT_EQ(chat().revision(2)->release.traffic, 250);
  w.must(ChangeRelease{.endpoint = "chat", .promote = true});
  EXPECT_EQ(chat().rolling, 2);
  EXPECT_EQ(chat().canary, 2) << "it keeps its part while it gets its replicas";
  w.must(JudgeRevision{"chat", 2, true, "", {}});
  EXPECT_EQ(chat().serving, 2);
  EXPECT_EQ(chat().canary, 0);
  EXPECT_EQ(chat().revision(1)->state, RevisionState::retired);
}

TEST_F(Releases, AWorseCanaryEndsWithItsReason) {
  start_canary();
  w.must(JudgeRevision{"chat", 2, false, "12 of its 20 requests failed", {}});
  EXPECT_EQ(chat().serving, 1);
  EXPECT_EQ(chat().canary, 0);
  EXPECT_EQ(chat().revision(2)->state, RevisionState::rolled_back);
  EXPECT_EQ(chat().revision(2)->reason, "12 of its 20 requests failed");
  const auto* ended = get_if<ReleaseEnded>(&w.history.back().body);
  ASSERT_TRUE(ended);
  EXPECT_TRUE(ended->automatic);
  EXPECT_FALSE(w.run(ChangeRelease{.endpoint = "chat", .traffic = 10}));
}

TEST_F(Releases, RollbackEndsACanaryBeforeItTouchesOldRevisions) {
  start_canary();
  EXPECT_FALSE(w.run(deploy)) << "nothing is deployed beside a canary";
  w.must(RollbackEndpoint{"chat", 0});
  EXPECT_EQ(chat().canary, 0);
  EXPECT_EQ(chat().rolling, 0);
  EXPECT_EQ(chat().serving, 1);
  w.must(RollbackEndpoint{"chat", 2});
  EXPECT_EQ(chat().rolling, 3) << "a canary that has ended can be deployed again";
  EXPECT_FALSE(chat().revision(3)->release.any());
}

TEST_F(Releases, ACanaryThatNeverBecomesHealthyHasFailed) {
  deploy.release = {.mirror = 50};
  w.must(deploy);
  w.must(JudgeRevision{"chat", 2, false, "it exited", {}});
  EXPECT_EQ(chat().revision(2)->state, RevisionState::failed);
  EXPECT_EQ(chat().serving, 1);
}

TEST_F(Releases, APartMustLeaveSomethingToCompareWith) {
  deploy.release = {.traffic = 1000};
  EXPECT_FALSE(w.run(deploy));
  deploy.name = "fresh";
  deploy.release = {.traffic = 100};
  EXPECT_FALSE(w.run(deploy)) << "it has no old revision";
}

TEST_F(Releases, ScaleChangesTheCanaryToo) {
  start_canary();
  w.must(ScaleEndpoint{"chat", 2, {}, {}});
  EXPECT_EQ(chat().revision(1)->policy.min, 2);
  EXPECT_EQ(chat().revision(2)->policy.min, 2);
}

TEST_F(Releases, WhatKeysUseIsAbsoluteAndHeardOnce) {
  w.must(SetEndpointKey{.endpoint = "chat", .name = "ci", .hash = "h"});
  KeyUse use{.day = 100, .endpoint = "chat", .key = "ci", .gateway = "g", .requests = 5};
  use.charge = {700};
  w.must(RecordKeyUses{{use}});
  const auto events = w.history.size();
  w.must(RecordKeyUses{{use}});
  EXPECT_EQ(w.history.size(), events);
  use.requests = 6;
  w.must(RecordKeyUses{{use}});
  KeyUse other = use;
  other.gateway = "h";
  w.must(RecordKeyUses{{other}});
  ASSERT_EQ(state().key_uses.size(), 2);
  EXPECT_EQ(state().key_uses.begin()->requests, 6);
  use.day = 300;
  w.must(RecordKeyUses{{use}});
  EXPECT_EQ(state().key_uses.size(), 1) << "old days are dropped";
}

TEST_F(Releases, ADollarLimitNeedsPrices) {
  SetEndpointKey key{.endpoint = "chat", .name = "paid", .hash = "h"};
  key.limits = {{LimitOf::usd, LimitPer::day, 5'000'000'000}};
  EXPECT_FALSE(w.run(key));
  key.limits = {{LimitOf::requests, LimitPer::minute, 5}, {LimitOf::requests, LimitPer::minute, 6}};
  EXPECT_FALSE(w.run(key)) << "twice the same kind";
  key.limits = {{LimitOf::requests, LimitPer::minute, 5}};
  key.expires_at = w.now - seconds(1);
  EXPECT_FALSE(w.run(key));
  key.expires_at = w.now + hours(1);
  w.must(key);
  EXPECT_EQ(chat().keys.front().limits, key.limits);
}

}  // namespace
}  // namespace billow::control
