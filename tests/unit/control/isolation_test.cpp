// Strict isolation: what is refused because it would not be a wall, what a project requires, and
// that no agent runs such a job with less.
#include "core/model/system_calls.h"
#include "core/wire/confined.h"
#include "world.h"

namespace billow::control {
namespace {

struct Isolated : testing::Test {
  World w;
  Isolated() { w.must(AgentHello{offer("gpu-1", 2), {}, {}}); }
  SubmitJob strict() {
    SubmitJob job = w.job();
    job.spec.surroundings.isolation = Isolation::strict;
    return job;
  }
  void refuses(const SubmitJob& job, const std::string& word) {
    const Status done = w.run(job);
    ASSERT_FALSE(done) << word;
    EXPECT_NE(done.error().message.find(word), std::string::npos) << done.error().message;
    EXPECT_FALSE(done.error().hint.empty()) << done.error().message;
  }
  const Start& started() const {
    for (const Effect& e : w.effects)
      if (const auto* start = get_if<Start>(&e.message))
        return *start;
    throw std::runtime_error("nothing was started");
  }
};

TEST_F(Isolated, AStrictJobStartsForNobodyWhoCouldRunItWithLess) {
  w.must(strict());
  const Start& start = started();
  EXPECT_EQ(start.unix_user, wire::strict_user_name) << "no machine has this account";
  EXPECT_NE(start.unix_user, wire::confined_user_name) << "which agents of 0.1 know";
  EXPECT_TRUE(wire::strict_isolation(start));
  EXPECT_FALSE(wire::confined_for(start).empty());
  EXPECT_EQ(start.surroundings.network, ContainerNetwork::none);
  EXPECT_FALSE(start.suspendable);
  w.check_replay();
}

TEST_F(Isolated, APlainJobIsAsBefore) {
  w.must(w.job());
  EXPECT_TRUE(wire::confined_for(started()).empty());
  EXPECT_EQ(started().surroundings.network, ContainerNetwork::host);
}

TEST_F(Isolated, WhatWouldNotBeAWallIsRefused) {
  SubmitJob job = strict();
  job.spec.nodes = 2;
  refuses(job, "a gang needs a network");
  job = strict();
  job.spec.resources.whole_node = true;
  job.spec.resources.gpus = 0;
  refuses(job, "--whole-node");
  job = strict();
  job.spec.resources.share.milli = 500;
  refuses(job, "slice");
  job = strict();
  job.spec.surroundings.image = "docker.io/library/python:3";
  job.spec.procs = 2;
  refuses(job, "--procs");
  job = strict();
  job.spec.suspendable = Suspendable::yes;
  refuses(job, "suspended");
  job = strict();
  job.spec.surroundings.outputs = {{"s3://bucket/x", "out"}};
  refuses(job, "without a network");
  job = strict();
  job.spec.checkpoint_dir = "/srv/checkpoints";
  refuses(job, "--checkpoint-dir");
}

TEST_F(Isolated, InputsNeedAProjectThatMayReachTheInternet) {
  const std::string project = w.core.state().projects.begin()->second.name;
  SubmitJob job = strict();
  job.spec.surroundings.inputs = {{"s3://bucket/x", "x"}};
  w.must(job);
  w.must(SetProject{.name = project, .isolation = Isolation::strict});
  refuses(job, "must not fetch inputs");
  w.must(SetProject{.name = project, .network = ContainerNetwork::project});
  refuses(job, "must not fetch inputs");
  w.must(SetProject{.name = project, .network = ContainerNetwork::internet});
  w.must(job);
}

TEST_F(Isolated, AProjectCanRequireIt) {
  const std::string project = w.core.state().projects.begin()->second.name;
  w.must(SetProject{.name = project, .isolation = Isolation::strict});
  refuses(w.job(), "strict isolation only");
  w.must(strict());
  w.must(SetProject{.name = project, .weight = 7});
  refuses(w.job(), "strict isolation only");
  w.must(SetProject{.name = project, .isolation = Isolation::plain});
  w.must(w.job());
  w.check_replay();
}

TEST_F(Isolated, AJobThatMustBeStrictHasOnlyTheNetworkOfItsProject) {
  const std::string project = w.core.state().projects.begin()->second.name;
  SubmitJob online = strict(), together = strict();
  online.spec.surroundings.network = ContainerNetwork::internet;
  together.spec.surroundings.network = ContainerNetwork::project;
  w.must(online);
  EXPECT_EQ(started().surroundings.network, ContainerNetwork::internet);
  w.must(SetProject{.name = project, .isolation = Isolation::strict});
  refuses(online, "must not reach the Internet");
  refuses(together, "must not reach each other");
  w.must(SetProject{.name = project, .network = ContainerNetwork::project});
  refuses(online, "must not reach the Internet");
  w.must(together);
  w.must(SetProject{.name = project,
                    .network = ContainerNetwork::internet,
                    .allow = std::vector<std::string>{"10.1.0.0/16"}});
  w.must(online);
  online.spec.surroundings.allow = {"10.2.0.1"};
  refuses(online, "must not reach 10.2.0.1");
  online.spec.surroundings.allow = {"10.1.7.0/24"};
  w.must(online);
  EXPECT_FALSE(w.run(SetProject{.name = project, .network = ContainerNetwork::host}));
  EXPECT_FALSE(w.run(SetProject{.name = project, .allow = std::vector<std::string>{"8.8.8.8"}}));
  w.check_replay();
}

TEST_F(Isolated, ProjectsAddToWhatAJobReaches) {
  const std::string project = w.core.state().projects.begin()->second.name;
  w.must(SetProject{.name = project, .allow = std::vector<std::string>{"10.1.0.0/16"}});
  SubmitJob job = strict();
  job.spec.surroundings.network = ContainerNetwork::internet;
  job.spec.surroundings.allow = {"10.9.9.9"};
  w.must(job);
  EXPECT_EQ(started().surroundings.allow, (std::vector<std::string>{"10.9.9.9", "10.1.0.0/16"}));
}

TEST_F(Isolated, NetworksNeedSomethingAroundTheJob) {
  SubmitJob job = w.job();
  job.spec.surroundings.network = ContainerNetwork::internet;
  refuses(job, "--network internet needs an image");
  job = strict();
  job.spec.surroundings.allow = {"10.9.9.9"};
  refuses(job, "--allow needs --network internet");
  job.spec.surroundings.network = ContainerNetwork::internet;
  job.spec.surroundings.allow = {"169.254.169.254"};
  refuses(job, "not a private network");
}

TEST_F(Isolated, NamesOfSystemCallsAreChecked) {
  SubmitJob job = w.job();
  job.spec.surroundings.refused_calls = {"mkdir", "ptrace", "open"};
  w.must(job);
  job.spec.surroundings.refused_calls = {"mkdri"};
  const Status done = w.run(job);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().hint, "did you mean \"mkdir\"?");
  job.spec.surroundings.refused_calls.assign(refused_calls_max + 1, "mkdir");
  EXPECT_FALSE(w.run(job));
  EXPECT_TRUE(system_call_number("ptrace"));
  EXPECT_FALSE(system_call_number("mkdri"));
}

}  // namespace
}  // namespace billow::control
