// Secrets, saved environments and volumes: who has them, what a job that asks for them gets, and
// that replay knows all of it.
#include "world.h"

namespace billow::control {
namespace {

struct Catalogue : testing::Test {
  World w;
  UserId ana;
  Catalogue() {
    ana = w.core.state().users.begin()->first;
    w.must(AddProject{"other"});
    w.must(AgentHello{offer("gpu-1", 2), {}, {}});
  }
  const Start* started(JobId id) const {
    for (const Effect& e : w.effects)
      if (const auto* start = get_if<Start>(&e.message); start && start->job == id)
        return start;
    return nullptr;
  }
};

TEST_F(Catalogue, ASecretBelongsToItsProjectAndIsInNoDescription) {
  w.must(SetSecret{"", ana, "HF_TOKEN", "sealed-bytes"});
  SubmitJob job = w.job();
  job.spec.surroundings.secrets = {{"HF_TOKEN", "HF_TOKEN", ""}};
  w.must(job);
  const Start* start = started(JobId(1));
  ASSERT_TRUE(start);
  EXPECT_TRUE(start->secrets.empty());  // the shell opens them; the core never can
  EXPECT_EQ(start->surroundings.secrets.size(), 1U);

  SubmitJob elsewhere = job;
  elsewhere.project = "other";
  EXPECT_FALSE(w.run(elsewhere));
  SubmitJob mistyped = job;
  mistyped.spec.surroundings.secrets = {{"HF_TOKE", "HF_TOKEN", ""}};
  const Status refused = w.run(mistyped);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().hint, "did you mean \"HF_TOKEN\"?");
  for (const char* variable : {"LD_PRELOAD", "BILLOW_TOKEN", "1A", "A=B"}) {
    SubmitJob bad = job;
    bad.spec.surroundings.secrets = {{"HF_TOKEN", variable, ""}};
    EXPECT_FALSE(w.run(bad)) << variable;
  }
  w.must(RemoveSecret{"", ana, "HF_TOKEN"});
  EXPECT_FALSE(w.run(job));
  EXPECT_FALSE(w.run(RemoveSecret{"", ana, "HF_TOKEN"}));
  w.check_replay();
}

TEST_F(Catalogue, ARegistrySecretIsOfTheProjectAndForAnImage) {
  w.must(SetSecret{"", ana, "ghcr", "sealed-bytes"});
  SubmitJob job = w.job();
  job.spec.surroundings.image = "ghcr.io/acme/train";
  job.spec.surroundings.registry_secret = "ghcr";
  w.must(job);
  const Start* start = started(JobId(1));
  ASSERT_TRUE(start);
  EXPECT_EQ(start->surroundings.registry_secret, "ghcr");
  EXPECT_EQ(start->registry_login, GivenLogin{});  // the shell opens it; the core never can

  SubmitJob elsewhere = job;
  elsewhere.project = "other";
  const Status refused = w.run(elsewhere);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "project other has no secret \"ghcr\"");
  SubmitJob plain = job;
  plain.spec.surroundings.image = "";
  EXPECT_FALSE(w.run(plain));
  w.must(RemoveSecret{"", ana, "ghcr"});
  EXPECT_FALSE(w.run(job));
  w.check_replay();
}

TEST_F(Catalogue, AnEndpointHoldsItsRegistrySecret) {
  w.must(SetSecret{"", ana, "ghcr", "sealed-bytes"});
  DeployEndpoint deploy{
      .name = "llm", .spec = w.job().spec, .env = {}, .project = "", .user = ana, .policy = {}};
  deploy.spec.surroundings.image = "ghcr.io/acme/serve";
  deploy.spec.surroundings.registry_secret = "ghcr";
  w.must(deploy);
  const Status refused = w.run(RemoveSecret{"", ana, "ghcr"});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::conflict);
}

TEST_F(Catalogue, ThingsThatAnEndpointUsesCannotBeRemoved) {
  SavedEnvironment env;
  env.name = "torch";
  env.digest = "d1";
  env.path = "/opt/venv";
  w.must(SaveEnvironment{"", ana, env});
  w.must(SetSecret{"", ana, "HF_TOKEN", "sealed-bytes"});
  Volume volume;
  volume.name = "models";
  volume.path = "/srv/models";
  w.must(DeclareVolume{ana, volume});
  DeployEndpoint deploy{
      .name = "llm", .spec = w.job().spec, .env = {}, .project = "", .user = ana, .policy = {}};
  deploy.spec.surroundings.environment = "torch";
  deploy.spec.surroundings.secrets = {{"HF_TOKEN", "HF_TOKEN", ""}};
  deploy.spec.surroundings.volumes = {{"models", "/mnt/models", true}};
  w.must(deploy);
  for (const Command& remove :
       {Command(RemoveEnvironment{"", ana, "torch"}), Command(RemoveSecret{"", ana, "HF_TOKEN"}),
        Command(RemoveVolume{"models"})}) {
    const Status refused = w.run(remove);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::conflict);
    EXPECT_NE(refused.error().message.find("endpoint llm"), std::string::npos)
        << refused.error().message;
  }
  // Once a revision without them serves nothing holds them; the one that had them cannot be brought
  // up again.
  w.must(JudgeRevision{"llm", 1, true, ""});
  DeployEndpoint plain = deploy;
  plain.spec.surroundings = {};
  w.must(plain);
  EXPECT_FALSE(w.run(RemoveSecret{"", ana, "HF_TOKEN"})) << "the first one serves still";
  w.must(JudgeRevision{"llm", 2, true, ""});
  w.must(RemoveEnvironment{"", ana, "torch"});
  w.must(RemoveSecret{"", ana, "HF_TOKEN"});
  w.must(RemoveVolume{"models"});
  const Status rolled = w.run(RollbackEndpoint{"llm", 1});
  ASSERT_FALSE(rolled);
  EXPECT_NE(rolled.error().message.find("HF_TOKEN"), std::string::npos) << rolled.error().message;
  w.check_replay();
}

TEST_F(Catalogue, APublishedNameIsGivenOnceAndAProjectsOwnGoesFirst) {
  SavedEnvironment env;
  env.name = "torch";
  env.digest = "shared";
  env.path = "/opt/venv";
  env.shared = true;
  w.must(SaveEnvironment{"other", ana, env, true});
  SubmitJob job = w.job(0);
  job.spec.surroundings.environment = "torch";
  w.must(job);
  EXPECT_EQ(w.core.state().find_job(JobId(1))->spec->surroundings.environment_digest, "shared");
  env.digest = "another";
  const Status second = w.run(SaveEnvironment{"default", ana, env, true});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::conflict);
  EXPECT_NE(second.error().message.find("other"), std::string::npos) << second.error().message;
  env.shared = false;
  w.must(SaveEnvironment{"default", ana, env});
  w.must(job);
  EXPECT_EQ(w.core.state().find_job(JobId(2))->spec->surroundings.environment_digest, "another");
  env.shared = true;
  w.must(SaveEnvironment{"other", ana, env, true});  // again, by who has the name
  w.check_replay();
}

// Content of another project runs with the job's rights and secrets: its name says whose it is.
TEST_F(Catalogue, WhatAMemberSharesIsUsedOnlyUnderItsProjectsName) {
  SavedEnvironment env;
  env.name = "torch";
  env.digest = "theirs";
  env.path = "/opt/venv";
  env.shared = true;
  w.must(SaveEnvironment{"other", ana, env});
  SubmitJob job = w.job(0);
  job.spec.surroundings.environment = "torch";
  const Status bare = w.run(job);
  ASSERT_FALSE(bare);
  EXPECT_EQ(bare.error().code, Code::not_found);
  EXPECT_NE(bare.error().hint.find("other/torch"), std::string::npos) << bare.error().hint;
  job.spec.surroundings.environment = "other/torch";
  w.must(job);
  EXPECT_EQ(w.core.state().find_job(JobId(1))->spec->surroundings.environment_digest, "theirs");
  env.shared = false;
  w.must(SaveEnvironment{"other", ana, env});
  EXPECT_FALSE(w.run(job)) << "it is no longer shared";
  w.check_replay();
}

TEST_F(Catalogue, OnlyAnAdminChangesAPublishedEnvironment) {
  SavedEnvironment env;
  env.name = "torch";
  env.digest = "good";
  env.path = "/opt/venv";
  env.shared = true;
  w.must(SaveEnvironment{"other", ana, env, true});
  env.digest = "evil";
  const Status replaced = w.run(SaveEnvironment{"other", ana, env});
  ASSERT_FALSE(replaced);
  EXPECT_EQ(replaced.error().code, Code::forbidden);
  EXPECT_FALSE(w.run(RemoveEnvironment{"other", ana, "torch"}));
  w.must(RemoveEnvironment{"other", ana, "torch", true});
}

// Everybody's jobs run what a published name stands for, also those of users with more rights.
TEST_F(Catalogue, ALaterAdminDoesNotReplaceWhatTheFounderPublished) {
  w.must(AddUser{"ops", "ops", roles::admin});
  w.must(AddUser{"ops2", "ops2", roles::admin});
  const UserId ops = w.core.state().user_by_name("ops")->id;
  const UserId ops2 = w.core.state().user_by_name("ops2")->id;
  SavedEnvironment env;
  env.name = "torch";
  env.digest = "good";
  env.path = "/opt/venv";
  env.shared = true;
  w.must(SaveEnvironment{"other", ana, env, true});
  env.digest = "evil";
  const Status replaced = w.run(SaveEnvironment{"other", ops, env, true});
  ASSERT_FALSE(replaced);
  EXPECT_EQ(replaced.error().code, Code::forbidden);
  EXPECT_FALSE(w.run(RemoveEnvironment{"other", ops, "torch", true}));
  env.name = "jax";
  w.must(SaveEnvironment{"other", ops, env, true});
  EXPECT_FALSE(w.run(SaveEnvironment{"other", ops2, env, true}));
  env.digest = "newer";
  w.must(SaveEnvironment{"other", ops, env, true});
  w.must(RemoveEnvironment{"other", ana, "jax", true});
}

// The founder of this world runs jobs as root.
TEST(RootsEnvironments, AreRootsOwnOrNamedByTheirDigest) {
  World w;
  StartHead start = w.start;
  start.admin = "root";
  start.epoch = 2;
  w.must(start);
  w.must(SetMember{"default", "root", roles::admin});
  w.must(AgentHello{offer("n1", 8), {}});
  w.must(AddUser{"mal"});
  w.must(SetMember{"default", "mal", roles::member});
  const UserId root = w.core.state().user_by_name("root")->id;
  const UserId mal = w.core.state().user_by_name("mal")->id;
  SavedEnvironment env;
  env.name = "torch";
  env.digest = "0123456789abcdef0123456789abcdef";
  env.path = "/opt/venv";
  w.must(SaveEnvironment{"default", root, env});
  SubmitJob job = w.job();
  job.user = root;
  job.project = "default";
  job.spec.surroundings.environment = "torch";
  w.must(job);
  env.digest = "fedcba9876543210fedcba9876543210";
  w.must(SaveEnvironment{"default", mal, env});
  const Status run = w.run(job);
  ASSERT_FALSE(run) << "root would run what mal has saved";
  EXPECT_EQ(run.error().code, Code::forbidden);
  EXPECT_NE(run.error().hint.find("torch@fedcba9876543210"), std::string::npos) << run.error().hint;
  job.spec.surroundings.environment = "torch@fedcba9876543210";
  w.must(job);
  EXPECT_EQ(w.core.state().jobs.rbegin()->second.spec->surroundings.environment_digest, env.digest);
  EXPECT_EQ(w.core.state().jobs.rbegin()->second.spec->surroundings.environment, "torch");
  for (const char* other :
       {"torch@0123456789abcdef", "torch@fedc", "torch@", "@fedcba9876543210"}) {
    job.spec.surroundings.environment = other;
    EXPECT_FALSE(w.run(job)) << other;
  }
  // Jobs of others run what their project has.
  job.user = mal;
  job.spec.surroundings.environment = "torch";
  w.must(job);
}

// The same content under another name, or in another project, has its own path.
TEST_F(Catalogue, AnothersCopyDoesNotSayWhereAnEnvironmentIsMounted) {
  SavedEnvironment env;
  env.name = "torch";
  env.digest = "d1";
  env.path = "/opt/venv";
  w.must(SaveEnvironment{"", ana, env});
  env.path = "/etc";
  env.shared = true;
  w.must(SaveEnvironment{"other", ana, env});
  env.name = "zzz";
  w.must(SaveEnvironment{"other", ana, env});
  SubmitJob job = w.job(2);
  job.spec.surroundings.environment = "torch";
  w.must(job);
  ASSERT_TRUE(started(JobId(1)));
  EXPECT_EQ(started(JobId(1))->environment_path, "/opt/venv");
}

TEST_F(Catalogue, AJobKeepsTheEnvironmentItWasSubmittedWith) {
  SavedEnvironment env;
  env.name = "torch";
  env.digest = "d1";
  env.path = "/opt/venv";
  w.must(SaveEnvironment{"", ana, env});
  SubmitJob job = w.job(2);
  job.spec.surroundings.environment = "torch";
  w.must(job);
  ASSERT_TRUE(started(JobId(1)));
  EXPECT_EQ(started(JobId(1))->environment_path, "/opt/venv");
  w.must(job);  // waits
  env.digest = "d2";
  w.must(SaveEnvironment{"", ana, env});
  EXPECT_EQ(w.core.state().find_job(JobId(2))->spec->surroundings.environment_digest, "d1");
  w.must(job);
  EXPECT_EQ(w.core.state().find_job(JobId(3))->spec->surroundings.environment_digest, "d2");

  SubmitJob elsewhere = job;
  elsewhere.project = "other";
  EXPECT_FALSE(w.run(elsewhere));
  env.shared = true;
  w.must(SaveEnvironment{"", ana, env, true});
  w.must(elsewhere);
  for (const char* path : {"opt", "/opt/../etc", "", "/a\nb"}) {
    SavedEnvironment bad = env;
    bad.path = path;
    EXPECT_FALSE(w.run(SaveEnvironment{"", ana, bad, true})) << path;
  }
  w.check_replay();
}

TEST_F(Catalogue, AnImageDigestIsRecordedOnlyForItsJob) {
  const std::string one = "sha256:" + std::string(64, '1'), two = "sha256:" + std::string(64, '2');
  SubmitJob job = w.job();
  w.must(job);
  EXPECT_FALSE(w.run(ImageFound{w.task_of(JobId(1)), one}));  // it runs in none
  job.spec.surroundings.image = "docker.io/a/b:1";
  w.must(job);
  const TaskId task = w.task_of(JobId(2));
  for (const char* bad : {"", "sha256:1", "latest"})
    EXPECT_FALSE(w.run(ImageFound{task, bad})) << bad;
  EXPECT_FALSE(w.run(ImageFound{TaskId(999), one}));
  w.must(ImageFound{task, one});
  const std::size_t known = w.history.size();
  w.must(ImageFound{task, one});  // told again
  EXPECT_EQ(w.history.size(), known);
  EXPECT_EQ(w.core.state().find_job(JobId(2))->image_digest, one);
  w.must(ImageFound{task, two});  // the tag moved between two attempts: the last one counts
  EXPECT_EQ(w.core.state().find_job(JobId(2))->image_digest, two);
  w.check_replay();
}

TEST_F(Catalogue, AVolumeDecidesWhereItsJobsRun) {
  w.must(AgentHello{offer("gpu-2", 2), {}, {}});
  NodeOffer shelf = offer("gpu-3", 2);
  shelf.labels["shelf"] = "a";
  w.must(AgentHello{shelf, {}, {}});
  Volume data;
  data.name = "data";
  data.path = "/srv/data";
  data.node_labels = {{"shelf", "a"}};
  data.read_only = true;
  data.projects = {"default"};
  w.must(DeclareVolume{ana, data});
  SubmitJob job = w.job();
  job.spec.surroundings.volumes = {{"data", "/data", false}};
  w.must(job);
  ASSERT_TRUE(started(JobId(1)));
  EXPECT_EQ(started(JobId(1))->volumes, (std::vector<BoundVolume>{{"/srv/data", "/data", true}}));
  EXPECT_EQ(w.core.state().nodes.at(w.core.state().find_task(w.task_of(JobId(1)))->node).offer.name,
            "gpu-3");

  Volume again = data;
  again.read_only = false;
  EXPECT_FALSE(w.run(DeclareVolume{ana, again}));  // what is read-only stays so

  SubmitJob elsewhere = job;
  elsewhere.project = "other";
  EXPECT_FALSE(w.run(elsewhere));
  SubmitJob against = job;
  against.spec.node_labels = {{"shelf", "b"}};
  EXPECT_FALSE(w.run(against));
  for (const char* path : {"data", "/", "/a/../b"}) {
    SubmitJob bad = job;
    bad.spec.surroundings.volumes = {{"data", path, false}};
    EXPECT_FALSE(w.run(bad)) << path;
  }
  w.must(RemoveVolume{"data"});
  EXPECT_FALSE(w.run(job));
  w.check_replay();
}

}  // namespace
}  // namespace billow::control
