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
  EXPECT_FALSE(w.run(JoinNode{token("first"), "fast-1", key})) << "a machine that nobody ordered";
  Machine machine;
  machine.name = "fast-1";
  machine.pool = id;
  Event wanted;
  wanted.seq = state().seq + 1;
  wanted.at = w.now;
  wanted.body = MachineWanted{machine, "a test"};
  w.core.replay(wanted);
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
  w.must(AddUser{"ops", "ops", roles::admin});
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
  w.must(SetMember{"default", "bo", roles::member});
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
  w.must(SetMember{"default", "bo", roles::member});
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
  w.must(AddUser{"ops", "ops", roles::admin});
  EXPECT_FALSE(w.run(SetUser{.name = "ana", .role = roles::member, .state = std::nullopt}));
  EXPECT_FALSE(w.run(SetUser{.name = "ana", .role = std::nullopt, .state = UserState::removed}));
  w.must(SetUser{.name = "ops", .role = roles::member, .state = std::nullopt});
  EXPECT_EQ(state().user_by_name("ops")->role, roles::member);
}

// Each revision runs as the user who deployed it, whoever deploys the next or rolls back.
TEST_F(Identity, ARevisionOfAnEndpointRunsAsItsOwnUser) {
  w.must(AgentHello{offer("n1", 8), {}});
  w.must(AddUser{"bo"});
  w.must(SetMember{"default", "bo", roles::member});
  const UserId bo = state().user_by_name("bo")->id, ana = state().user_by_name("ana")->id;
  DeployEndpoint deploy{.name = "chat", .project = "default", .user = bo};
  deploy.spec.argv = {"serve"};
  deploy.policy.max = 4;
  w.must(deploy);
  const auto replica = [&](std::uint32_t revision) {
    const JobId id(state().next_job);
    w.must(StartReplica{.endpoint = "chat", .revision = revision, .port = 2000});
    return state().find_job(id)->user;
  };
  EXPECT_EQ(replica(1), bo);
  w.must(JudgeRevision{.endpoint = "chat", .revision = 1, .healthy = true});
  deploy.user = ana;
  w.must(deploy);
  EXPECT_EQ(replica(1), bo) << "the revision before still serves";
  EXPECT_EQ(replica(2), ana);
  EXPECT_EQ(state().endpoints.at("chat").user, bo) << "it is still bo's endpoint";
  w.must(JudgeRevision{.endpoint = "chat", .revision = 2, .healthy = true});
  w.must(RollbackEndpoint{"chat", 1});
  EXPECT_EQ(replica(3), bo) << "what bo wrote runs as bo";
  w.check_replay();
}

struct LaterAdmin : Identity {
  UserId ops;
  LaterAdmin() {
    w.must(AddUser{"ops", "ops", roles::admin});
    ops = state().user_by_name("ops")->id;
    w.must(AddUser{"bo"});
    w.must(CreateToken{.name = "t", .hash = "ops", .user = "ops", .made_by = "ops"});
  }
  void make(const char* hash, const char* user, TokenScope scope, TokenId parent = {}) {
    w.must(CreateToken{.name = "t",
                       .hash = hash,
                       .user = user,
                       .scope = scope,
                       .node = scope == TokenScope::node ? "far" : "",
                       .made_by = "ops",
                       .parent = parent});
  }
  bool valid(const std::string& hash) const {
    return authenticate(state(), hash, w.now).has_value();
  }
};

TEST_F(LaterAdmin, TakesNobodysAccount) {
  const auto add = [&](const char* name, const char* account) {
    return w.run(AddUser{name, account, roles::member, ops});
  };
  const Status taken = add("evil", "bo");
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, Code::forbidden);
  EXPECT_FALSE(add("evil", "ana")) << "the founder's";
  EXPECT_FALSE(add("evil", "root"));
  w.must(SetUser{.name = "bo", .role = std::nullopt, .state = UserState::removed});
  EXPECT_FALSE(add("evil", "bo")) << "of a user who was removed";
  EXPECT_TRUE(add("bo", "bo")) << "bo is back";
  EXPECT_TRUE(add("cy", "cy"));
  // Who started the head has the account's rights anyway, and may let two share one.
  w.must(AddUser{"shares", "cy", roles::member, state().user_by_name("ana")->id});
}

TEST_F(LaterAdmin, LosesWithTheRoleWhatTheRoleHadMade) {
  make("for-bo", "bo", TokenScope::full);
  make("join", "ops", TokenScope::join);
  make("gateway", "ops", TokenScope::gateway);
  make("node", "ops", TokenScope::node);
  make("own", "ops", TokenScope::full);
  w.must(CreateToken{.name = "t", .hash = "bos", .user = "bo", .made_by = "bo"});
  make("of-bo", "bo", TokenScope::read, token("for-bo"));
  const std::string key = fresh_key();
  w.must(JoinNode{token("join"), "box", key});
  w.must(AddWebhook{"https://example.org/", {}, ops});
  w.must(AddWebhook{"https://example.com/", {}, state().user_by_name("ana")->id});
  w.must(SetUser{.name = "ops", .role = roles::member, .state = std::nullopt});
  for (const char* gone : {"for-bo", "join", "gateway", "node", "of-bo"})
    EXPECT_FALSE(valid(gone)) << gone;
  for (const char* stays : {"own", "ops", "bos"})
    EXPECT_TRUE(valid(stays)) << stays;
  EXPECT_TRUE(valid(node_key_hash(key))) << "nobody but the machine has its key";
  ASSERT_EQ(state().money.webhooks.size(), 1u);
  EXPECT_EQ(state().money.webhooks.begin()->second.url, "https://example.com/");
  w.check_replay();
}

TEST_F(LaterAdmin, LosesTheSameWhenRemovedOrDisabled) {
  for (const UserState state_after : {UserState::disabled, UserState::removed}) {
    make("for-bo", "bo", TokenScope::full);
    w.must(AddWebhook{"https://example.org/", {}, ops});
    w.must(SetUser{.name = "ops", .role = std::nullopt, .state = state_after});
    EXPECT_FALSE(valid("for-bo"));
    EXPECT_TRUE(state().money.webhooks.empty());
    if (state_after == UserState::disabled)
      w.must(SetUser{.name = "ops", .role = std::nullopt, .state = UserState::active});
  }
}

TEST_F(LaterAdmin, TokensEndWithTheTokenThatCreatedThem) {
  make("child", "ops", TokenScope::full, token("ops"));
  make("grandchild", "ops", TokenScope::read, token("child"));
  w.must(CreateToken{.name = "dashboard",
                     .hash = session_hash(token("grandchild"), "s"),
                     .user = "ops",
                     .life = hours(1)});
  make("other", "ops", TokenScope::full);
  w.must(RevokeToken{token("ops")});
  for (const char* gone : {"ops", "child", "grandchild"})
    EXPECT_FALSE(valid(gone)) << gone;
  EXPECT_TRUE(valid("other"));
  for (const auto& [id, token] : state().tokens)
    EXPECT_FALSE(session_parent(token)) << "its session ended too";
}

struct Defaults : Identity {
  UserId bo;
  Defaults() {
    w.must(AgentHello{offer("n1", 8), {}});
    w.must(AddUser{"bo"});
    bo = state().user_by_name("bo")->id;
    for (const char* name : {"early", "vision", "audio"})
      w.must(AddProject{name, 100});
  }
  Result<std::string> project() {
    SubmitJob job = w.job();
    job.user = bo;
    const JobId id(state().next_job);
    BILLOW_TRY_VOID(w.run(job));
    return state().projects.at(state().find_job(id)->project).name;
  }
};

// Numbers of projects are in the order of their creation: an older project's admin could have drawn
// everybody's jobs, with their files and variables, into it.
TEST_F(Defaults, BeingAddedToAnOlderProjectMovesNoJobs) {
  w.must(SetMember{"vision", "bo", roles::member});
  EXPECT_EQ(project().value(), "vision");
  w.must(SetMember{"early", "bo", roles::member});
  EXPECT_EQ(project().value(), "vision");
  w.must(SetMember{"early", "bo", roles::admin});
  EXPECT_EQ(project().value(), "vision");
  w.must(SetDefaultProject{bo, "early"});
  EXPECT_EQ(project().value(), "early");
  EXPECT_FALSE(w.run(SetDefaultProject{bo, "audio"})) << "not a member";
  w.check_replay();
}

TEST_F(Defaults, WhoLosesTheDefaultIsAskedAndNotMoved) {
  w.must(SetMember{"vision", "bo", roles::member});
  w.must(SetMember{"early", "bo", roles::member});
  w.must(SetMember{"vision", "bo", std::nullopt});
  const auto lost = project();
  ASSERT_FALSE(lost);
  EXPECT_NE(lost.error().hint.find("billow project default"), std::string::npos);
  w.must(SetMember{"vision", "bo", roles::viewer});
  EXPECT_FALSE(project());
  w.must(SetDefaultProject{bo, "early"});
  EXPECT_EQ(project().value(), "early");
}

TEST_F(Defaults, AViewersFirstProjectIsNoDefault) {
  w.must(SetMember{"early", "bo", roles::viewer});
  EXPECT_FALSE(project());
  w.must(SetMember{"vision", "bo", roles::member});
  EXPECT_EQ(project().value(), "vision");
  w.must(SetMember{"early", "bo", roles::member});
  EXPECT_EQ(project().value(), "vision");
}

// Of version 0.1: the first project they could use, as it was then.
TEST_F(Defaults, OfUsersWithoutOneAreFixedWhenTheHeadStarts) {
  State old = *restore(image(state()));
  old.projects.at(state().project_by_name("audio")->id).members["bo"] = roles::member;
  old.projects.at(state().project_by_name("vision")->id).members["bo"] = roles::member;
  Core core(std::move(old), World::prices());
  StartHead again = w.start;
  again.epoch = 2;
  ASSERT_TRUE(core.execute(again, {"head", "start"}, w.now));
  ASSERT_TRUE(core.execute(SetMember{"early", "bo", roles::member}, {"user:mal", ""}, w.now));
  EXPECT_EQ(core.state().projects.at(core.state().user_by_name("bo")->default_project).name,
            "vision");
}

}  // namespace
}  // namespace billow::control
