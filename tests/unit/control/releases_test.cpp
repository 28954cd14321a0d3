// Canaries and keys of endpoints, as the head decides and keeps them.
#include "core/model/endpoint_program.h"
#include "core/wire/codec.h"
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

TEST_F(Releases, RollbackRestoresTheProgramButNeitherAccessNorLimits) {
  EndpointPolicy& old = deploy.policy;
  old.access = EndpointAccess::open;
  old.health = "/old";
  old.probes.live = "/old-live";
  old.start_timeout = minutes(3);
  old.spot = true;
  old.base_on_demand = 4;
  deploy.spec.argv = {"serve", "old"};
  w.must(deploy);
  w.must(JudgeRevision{"chat", 2, true, "", {}});

  EndpointPolicy later;
  later.access = EndpointAccess::key;
  later.max = 2;
  later.cors = {"https://example.org"};
  later.prices.request = NanoUsd{5};
  later.scaling.spend_per_hour = NanoUsd{9'000'000'000};
  later.health = "/new";
  deploy.policy = later;
  deploy.spec.argv = {"serve", "new"};
  w.must(deploy);
  w.must(JudgeRevision{"chat", 3, true, "", {}});
  w.must(ScaleEndpoint{.endpoint = "chat", .min = 1, .max = 3, .concurrency = 5});

  w.must(RollbackEndpoint{"chat", 0});
  const Revision& back = *chat().revision(4);
  EXPECT_EQ(back.spec->argv, (std::vector<std::string>{"serve", "old"}));
  EXPECT_EQ(back.reason, "as revision 2");
  EXPECT_EQ(back.policy.health, "/old");
  EXPECT_EQ(back.policy.probes.live, "/old-live");
  EXPECT_EQ(back.policy.start_timeout, minutes(3));
  EXPECT_TRUE(back.policy.spot);
  EXPECT_EQ(back.policy.base_on_demand, 3) << "never more than --max";
  EXPECT_EQ(back.policy.access, EndpointAccess::key);
  EXPECT_EQ(back.policy.min, 1);
  EXPECT_EQ(back.policy.max, 3);
  EXPECT_EQ(back.policy.concurrency, 5);
  EXPECT_EQ(back.policy.cors, later.cors);
  EXPECT_EQ(back.policy.prices, later.prices);
  EXPECT_EQ(back.policy.scaling, later.scaling);
}

TEST_F(Releases, OriginsAreKeptAsBrowsersSendThem) {
  deploy.policy.cors = {"https://example.org/", "*", "http://localhost:3000"};
  w.must(deploy);
  EXPECT_EQ(chat().revision(2)->policy.cors,
            (std::vector<std::string>{"https://example.org", "*", "http://localhost:3000"}));
  deploy.policy.cors = {"https://example.org/app/"};
  const Status refused = w.run(deploy);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("has no path"), std::string::npos);
  EXPECT_EQ(refused.error().hint, "write --cors https://example.org");
  deploy.policy.cors = {"example.org"};
  EXPECT_FALSE(w.run(deploy));
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
  deploy.policy.health = "/canary";
  start_canary();
  w.must(ScaleEndpoint{"chat", 2, {}, {}});
  EXPECT_EQ(chat().revision(1)->policy.min, 2);
  EXPECT_EQ(chat().revision(2)->policy.min, 2);
  EXPECT_EQ(chat().revision(1)->policy.health, "");
  EXPECT_EQ(chat().revision(2)->policy.health, "/canary") << "the probes of its own program";
}

// Each member alone, as the API takes it: it changes what it names, and nothing else, in the
// revision that serves.
TEST_F(Releases, ScaleChangesEveryScalingSettingWithoutARevision) {
  EndpointPolicy want = chat().current()->policy;
  const auto change = [&](const char* json) {
    const auto read = wire::from_json_text<ScaleChange>(json, true);
    ASSERT_TRUE(read) << json;
    DeployEndpoint settings{.name = "chat", .policy = chat().current()->policy};
    read->apply(settings.policy);
    w.must(settings);
    EXPECT_EQ(chat().current()->policy, want) << json;
  };
  want.max = 5;
  change(R"({"max":5})");
  want.min = 1;
  change(R"({"min":1})");
  want.concurrency = 3;
  change(R"({"concurrency":3})");
  want.queue_max = 7;
  change(R"({"queue_max":7})");
  want.idle = seconds(9);
  change(R"({"idle_ns":9000000000})");
  want.keep_suspended = {};
  change(R"({"keep_suspended_ns":0})");
  want.wait_target = seconds(2);
  change(R"({"wait_target_ns":2000000000})");
  want.balance = EndpointBalance::spread;
  change(R"({"balance":"spread"})");
  want.scaling.min_at = {"Mon-Fri 08:00-18:00=2"};
  change(R"({"min_at":["Mon-Fri 08:00-18:00=2"]})");
  want.scaling.spend_per_hour = NanoUsd{5'000'000'000};
  change(R"({"spend_per_hour":5000000000})");
  want.scaling.target_tokens = 4000;
  change(R"({"target_tokens":4000})");
  want.scaling.query = {"http://metrics.example.org:9090", "up", 2};
  change(R"({"query":{"url":"http://metrics.example.org:9090","query":"up","target":2}})");
  want.scaling.predict = true;
  change(R"({"predict":true})");
  want.scaling.min_at = {};
  change(R"({"min_at":[]})");
  want.scaling.query = {};
  change(R"({"query":{}})");
  EXPECT_EQ(chat().revisions.size(), 1u);
  EXPECT_FALSE(w.run(DeployEndpoint{.name = "nosuch"})) << "there is nothing to change";
  DeployEndpoint wrong{.name = "chat", .policy = want};
  wrong.policy.max = 0;
  EXPECT_FALSE(w.run(wrong));
  EXPECT_FALSE(wire::from_json_text<ScaleChange>(R"({"access":"open"})", true))
      << "who may call is no matter of scale";
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

TEST_F(Releases, CountsOfGatewaysNeverFallAndStayWhenTheyGo) {
  const auto sum = [&] {
    std::uint64_t requests = 0;
    for (const EndpointCount& count : chat().counts)
      requests += count.requests;
    return requests;
  };
  w.must(RecordEndpointCounts{{{.endpoint = "chat", .gateway = "g", .requests = 5, .failed = 2}}});
  const auto events = w.history.size();
  w.must(RecordEndpointCounts{{{.endpoint = "chat", .gateway = "g", .requests = 4, .failed = 1},
                               {.endpoint = "nosuch", .gateway = "g", .requests = 4}}});
  EXPECT_EQ(w.history.size(), events) << "nothing is new";
  w.must(RecordEndpointCounts{{{.endpoint = "chat", .gateway = "g", .requests = 4, .failed = 3}}});
  EXPECT_EQ(chat().counts.front().requests, 5);
  EXPECT_EQ(chat().counts.front().failed, 3);
  w.must(RecordEndpointCounts{{{.endpoint = "chat", .gateway = "h", .requests = 1}}});
  EXPECT_EQ(sum(), 6);
  // Many gateways come and go: the list is bounded, the sum is not.
  for (int i = 0; i < 100; ++i)
    w.must(RecordEndpointCounts{
        {{.endpoint = "chat", .gateway = "once-" + std::to_string(i), .requests = 10}}});
  EXPECT_EQ(sum(), 1006);
  EXPECT_LE(chat().counts.size(), 33u);
  w.must(DeleteEndpoint{"chat"});
  w.must(deploy);
  EXPECT_EQ(chat().counts.size(), 0u) << "another endpoint of the same name";
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
