// Who may become a node, speak for one, or act as somebody else; and what ends when a user leaves.
#include <algorithm>

#include "base/crypto.h"
#include "world.h"

namespace billow::control {
namespace {

std::string fresh_key() {
  return *public_key_of(make_signing_key());
}

struct Identity : testing::Test {
  World w;

  const State& state() const { return w.core.state(); }
  TokenId token(const std::string& hash) const { return state().token_by_hash.at(hash); }
  TokenId join_token(bool once, std::string node = {}) {
    w.must(CreateToken{.name = "join",
                       .hash = "join",
                       .user = "ana",
                       .scope = TokenScope::join,
                       .life = hours(1),
                       .node = std::move(node),
                       .once = once});
    return token("join");
  }
  bool has_event(const char* kind) const {
    return std::any_of(w.history.begin(), w.history.end(),
                       [&](const Event& e) { return World::wire_kind(e) == std::string(kind); });
  }
};

TEST_F(Identity, AJoinTokenForOneUseIsWorthlessOnceItWasUsed) {
  const TokenId join = join_token(true);
  const std::string key = fresh_key();
  w.must(JoinNode{join, "box", key});
  const Status thief = w.run(JoinNode{join, "box", fresh_key()});
  ASSERT_FALSE(thief) << "the same name with another key";
  EXPECT_EQ(thief.error().code, Code::unauthorized);
  EXPECT_FALSE(w.run(JoinNode{join, "box2", fresh_key()})) << "another name";
  EXPECT_FALSE(w.run(JoinNode{join, "box2", key})) << "another name with the machine's key";
  w.must(AgentHello{offer("box", 1), {}, token(node_key_hash(key))});
  w.check_replay();
}

TEST_F(Identity, AMachineThatDidNotGetTheAnswerJoinsAgainWithItsKey) {
  const TokenId join = join_token(true);
  const std::string key = fresh_key();
  w.must(JoinNode{join, "box", key});
  const std::size_t events = w.history.size();
  w.must(JoinNode{join, "box", key});
  EXPECT_EQ(w.history.size(), events) << "nothing new has happened";
}

TEST_F(Identity, AJoinTokenIsForTheMachineItWasMadeFor) {
  const TokenId join = join_token(true, "box");
  const Status other = w.run(JoinNode{join, "box2", fresh_key()});
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, Code::forbidden);
  w.must(JoinNode{join, "box", fresh_key()});
}

TEST_F(Identity, AReusableJoinTokenLetsManyJoinButNobodyTakeAName) {
  const TokenId join = join_token(false);
  w.must(JoinNode{join, "a", fresh_key()});
  w.must(JoinNode{join, "b", fresh_key()});
  EXPECT_FALSE(w.run(JoinNode{join, "a", fresh_key()})) << "joined a moment ago";
  w.now = w.now + hours(1);
  w.must(JoinNode{join, "a", fresh_key()});  // never connected: it was set up anew
}

// The head died after the provider had made the machine, and orders it again.
TEST_F(Identity, OfTwoTokensForOneMachineTheFirstUsedEndsTheOther) {
  Pool pool;
  pool.name = "fast";
  pool.kind = "slurm";
  pool.partition = "gpu";
  pool.gpus = 8;
  pool.gpu_type = "H100";
  pool.machines_max = 1;
  w.must(AddPool{pool});
  const PoolId id = state().pools.begin()->first;
  const UserId ana = state().users.begin()->first;
  for (const char* hash : {"first", "second"})
    w.must(
        OrderToken{.machine = "fast-1", .hash = hash, .user = ana, .pool = id, .life = hours(1)});
  const std::string key = fresh_key();
  w.must(JoinNode{token("first"), "fast-1", key});
  EXPECT_FALSE(w.run(JoinNode{token("second"), "fast-1", fresh_key()}));
  EXPECT_TRUE(state().token_by_hash.contains(node_key_hash(key)));
}

TEST_F(Identity, ARemovedNodeDoesNotComeBackWithItsOldToken) {
  const TokenId join = join_token(true);
  const std::string key = fresh_key();
  w.must(JoinNode{join, "box", key});
  w.must(AgentHello{offer("box", 1), {}, token(node_key_hash(key))});
  const NodeId node = state().node_by_name("box")->id;
  w.must(NodeSilent{node});
  w.must(RemoveNode{node});
  EXPECT_FALSE(state().token_by_hash.contains(node_key_hash(key)));
  EXPECT_FALSE(w.run(JoinNode{join, "box", key}));
  EXPECT_FALSE(w.run(JoinNode{join, "box", fresh_key()}));
}

TEST_F(Identity, ANodesTokenSpeaksForOneNode) {
  EXPECT_FALSE(
      w.run(CreateToken{.name = "n", .hash = "x", .user = "ana", .scope = TokenScope::node}))
      << "for which one?";
  w.must(CreateToken{
      .name = "n", .hash = "x", .user = "ana", .scope = TokenScope::node, .node = "box"});
  EXPECT_FALSE(w.run(AgentHello{offer("other", 1), {}, token("x")}));
  w.must(AgentHello{offer("box", 1), {}, token("x")});
  EXPECT_TRUE(speaks_for(state(), state().tokens.at(token("x")), "box"));
  EXPECT_FALSE(speaks_for(state(), state().tokens.at(token("x")), "other"));
}

TEST_F(Identity, TheLocalAgentsTokenSpeaksForTheNodeThatItSaidHelloFor) {
  const TokenId local = token("n");
  EXPECT_FALSE(speaks_for(state(), state().tokens.at(local), "here"));
  w.must(AgentHello{offer("here", 1), {}, local});
  EXPECT_TRUE(speaks_for(state(), state().tokens.at(local), "here"));
  EXPECT_FALSE(w.run(AgentHello{offer("there", 0), {}, local}));
  w.must(NodeSilent{state().node_by_name("here")->id});
  w.must(AgentHello{offer("renamed", 0), {}, local});
  EXPECT_FALSE(speaks_for(state(), state().tokens.at(local), "here"));
  w.check_replay();
}

// A standby on the same machine, or a head that starts on a restored store in another directory.
TEST_F(Identity, TheAgentOfAnotherHeadOfTheSameMachineTakesTheNodeOver) {
  w.must(AgentHello{offer("here", 1), {}, token("n")});
  StartHead second = w.start;
  second.node_token_hash = "n2";
  second.token_suffix = "-second";
  w.must(second);
  w.must(AgentHello{offer("here", 1), {}, token("n2")});
  EXPECT_TRUE(speaks_for(state(), state().tokens.at(token("n2")), "here"));
  EXPECT_FALSE(speaks_for(state(), state().tokens.at(token("n")), "here"));
  EXPECT_FALSE(w.run(AgentHello{offer("here", 1), {}, token("n")}))
      << "not while the other one answers";
  w.check_replay();
}

TEST_F(Identity, NobodyMakesTokensForWhoStartedTheHeadOrForRoot) {
  w.must(AddUser{"ops", "ops", Role::admin});
  const auto make = [&](const char* user) {
    return w.run(CreateToken{
        .name = "t", .hash = std::string("for-") + user, .user = user, .made_by = "ops"});
  };
  const Status starter = make("ana");
  ASSERT_FALSE(starter) << "ana started the head: her jobs may be root's";
  EXPECT_EQ(starter.error().code, Code::forbidden);
  w.must(AddUser{"bo"});
  ASSERT_TRUE(make("bo"));
  EXPECT_EQ(state().tokens.at(token("for-bo")).made_by, "ops");
  w.must(CreateToken{.name = "own", .hash = "own", .user = "ana", .made_by = "ana"});
}

TEST_F(Identity, ADisabledUserLosesTokensSessionsAndJobs) {
  w.must(AgentHello{offer("n1", 8), {}});
  w.must(AddUser{"bo"});
  w.must(SetMember{"default", "bo", Role::member});
  w.must(CreateToken{.name = "t", .hash = "bo", .user = "bo"});
  w.must(CreateToken{
      .name = "n", .hash = "node", .user = "bo", .scope = TokenScope::node, .node = "far"});
  const TokenId parent = token("bo");
  w.must(CreateToken{
      .name = "dashboard", .hash = session_hash(parent, "s"), .user = "bo", .life = hours(1)});
  SubmitJob job = w.job();
  job.user = state().user_by_name("bo")->id;
  w.must(job);
  ASSERT_EQ(state().find_job(JobId(1))->state, JobState::running);
  w.must(SetUser{.name = "bo", .role = std::nullopt, .state = UserState::disabled});
  EXPECT_FALSE(authenticate(state(), "bo", w.now));
  EXPECT_FALSE(authenticate(state(), session_hash(parent, "s"), w.now));
  EXPECT_TRUE(authenticate(state(), "node", w.now)) << "the machines that bo let join stay";
  EXPECT_EQ(state().find_job(JobId(1))->stopping, StopCause::request);
  EXPECT_FALSE(w.run(CreateToken{.name = "t", .hash = "again", .user = "bo"}));
  w.must(SetUser{.name = "bo", .role = std::nullopt, .state = UserState::active});
  w.must(CreateToken{.name = "t", .hash = "again", .user = "bo"});
  EXPECT_TRUE(has_event("user_changed"));
  w.check_replay();
}

TEST_F(Identity, ARemovedUserKeepsJobsOnlyIfAsked) {
  w.must(AgentHello{offer("n1", 8), {}});
  w.must(AddUser{"bo"});
  w.must(SetMember{"default", "bo", Role::member});
  SubmitJob job = w.job();
  job.user = state().user_by_name("bo")->id;
  w.must(job);
  w.must(SetUser{
      .name = "bo", .role = std::nullopt, .state = UserState::removed, .jobs = JobsOfUser::keep});
  EXPECT_EQ(state().find_job(JobId(1))->stopping, StopCause::none);
  EXPECT_FALSE(state().project_by_name("default")->members.contains("bo"));
  EXPECT_EQ(state().user_by_name("bo"), nullptr);
  w.must(AddUser{"bo"});
  EXPECT_NE(state().user_by_name("bo")->id, job.user) << "another person of the same name";
  w.check_replay();
}

TEST_F(Identity, WhoStartedTheHeadCannotBeDemotedOrRemoved) {
  w.must(AddUser{"ops", "ops", Role::admin});
  EXPECT_FALSE(w.run(SetUser{.name = "ana", .role = Role::member, .state = std::nullopt}));
  EXPECT_FALSE(w.run(SetUser{.name = "ana", .role = std::nullopt, .state = UserState::removed}));
  w.must(SetUser{.name = "ops", .role = Role::member, .state = std::nullopt});
  EXPECT_EQ(state().user_by_name("ops")->role, Role::member);
}

// Replicas of older revisions run as the endpoint's user: whoever took it over would run their
// code.
TEST_F(Identity, NobodyDeploysARevisionOfAnEndpointUnderAnotherAccount) {
  w.must(AddUser{"bo"});
  w.must(SetMember{"default", "bo", Role::member});
  DeployEndpoint deploy{.name = "chat", .user = state().user_by_name("bo")->id};
  deploy.spec.argv = {"serve"};
  w.must(deploy);
  deploy.user = state().user_by_name("ana")->id;
  EXPECT_FALSE(w.run(deploy)) << "an admin either";
  EXPECT_EQ(state().endpoints.at("chat").user, state().user_by_name("bo")->id);
}

}  // namespace
}  // namespace billow::control
