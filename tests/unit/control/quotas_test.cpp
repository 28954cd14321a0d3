// Quotas of the head: one user or project must not fill the queue for everybody.
#include "core/control/quotas.h"

#include "base/limits.h"
#include "world.h"

namespace billow::control {
namespace {

struct Crowd : World {
  UserId mallory, alice;
  Crowd() {
    now = WallTime{1'800'000'000'000'000'000};
    must(AgentHello{offer("n1", 8), {}});
    for (const char* name : {"mallory", "alice"})
      must(AddUser{.name = name, .unix_name = name, .role = roles::member});
    for (const char* project : {"audio", "vision"})
      must(AddProject{project, 100});
    must(SetMember{"audio", "mallory", roles::member});
    must(SetMember{"vision", "alice", roles::member});
    mallory = core.state().user_by_name("mallory")->id;
    alice = core.state().user_by_name("alice")->id;
  }
  SubmitJob array(UserId user, const std::string& project, std::uint64_t elements) {
    SubmitJob submit = job(8);
    submit.user = user;
    submit.project = project;
    if (elements > 1)
      submit.spec.array = ArraySpec{.first = 0, .last = elements - 1, .step = 1};
    return submit;
  }
  void set(QuotaScope scope, std::uint64_t of, QuotaKind kind, std::int64_t limit) {
    must(SetQuota{{{scope, of, kind}, limit}});
  }
};

TEST(Quotas, OneUserCannotFillTheQueueForOthers) {
  Crowd w;
  w.set(QuotaScope::user, 0, QuotaKind::queued_jobs, 100);
  w.must(w.array(w.mallory, "audio", 90));
  const Status refused = w.run(w.array(w.mallory, "audio", 20));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::exhausted);
  EXPECT_EQ(refused.error().message,
            "the quota queued-jobs of user mallory is 100; this would make it 110");
  EXPECT_NE(refused.error().hint.find("billow quota set --user mallory queued-jobs"),
            std::string::npos);
  w.must(w.array(w.alice, "vision", 90));

  w.set(QuotaScope::user, w.mallory.value, QuotaKind::queued_jobs, 1000);
  w.must(w.array(w.mallory, "audio", 20));
  w.must(RemoveQuota{{QuotaScope::user, w.mallory.value, QuotaKind::queued_jobs}});
  EXPECT_FALSE(w.run(w.array(w.mallory, "audio", 1)));
  w.check_replay();
}

TEST(Quotas, WhatEndsIsGivenBack) {
  Crowd w;
  w.set(QuotaScope::project, 0, QuotaKind::queued_jobs, 50);
  const JobId first(w.core.state().next_job);
  w.must(w.array(w.mallory, "audio", 50));
  EXPECT_FALSE(w.run(w.array(w.mallory, "audio", 1)));
  EXPECT_EQ(w.core.state().held_by_user.at(w.mallory).jobs, 50u);
  w.must(StopJob{first, "", false});
  // One element runs until its node says that it has ended.
  EXPECT_EQ(w.core.state().held_by_user.at(w.mallory).jobs, 1u);
  w.must(w.array(w.mallory, "audio", 49));
  EXPECT_FALSE(w.run(w.array(w.mallory, "audio", 1)));
  w.check_replay();
}

TEST(Quotas, LongDescriptionsCountAndAnArraysCountsOnce) {
  Crowd w;
  w.set(QuotaScope::user, 0, QuotaKind::spec_bytes, 100'000);
  SubmitJob large = w.array(w.mallory, "audio", 10);
  large.spec.argv = {"echo", std::string(60'000, 'x')};
  w.must(large);
  const Status refused = w.run(large);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("the quota spec-bytes of user mallory"),
            std::string::npos);
  SubmitJob small = w.array(w.mallory, "audio", 10);
  small.env = {{"X", std::string(60'000, 'x')}};
  EXPECT_FALSE(w.run(small)) << "variables are part of what is stored";
}

TEST(Quotas, AdminsHaveNoDefaultsButWhatIsSetCounts) {
  Crowd w;
  const UserId ana = w.core.state().user_by_name("ana")->id;
  EXPECT_EQ(quota_of(w.core.state(), QuotaScope::user, ana.value, QuotaKind::queued_jobs).limit,
            -1);
  EXPECT_EQ(quota_of(w.core.state(), QuotaScope::user, w.alice.value, QuotaKind::queued_jobs).limit,
            limits::user_queued_jobs_max);
  w.set(QuotaScope::user, ana.value, QuotaKind::queued_jobs, 1);
  w.must(w.array(ana, "audio", 1));
  EXPECT_FALSE(w.run(w.array(ana, "audio", 1)));
  EXPECT_FALSE(w.run(SetQuota{{{QuotaScope::user, ana.value, QuotaKind::connections}, 5}}))
      << "she started the head, and must be able to repair it";
  EXPECT_FALSE(w.run(SetQuota{{{QuotaScope::user, 0, QuotaKind::requests_per_s}, 0}}))
      << "nobody could undo it";
  EXPECT_FALSE(w.run(SetQuota{{{QuotaScope::project, 0, QuotaKind::connections}, 5}}))
      << "connections belong to users";
  EXPECT_FALSE(w.run(SetQuota{{{QuotaScope::user, 4711, QuotaKind::queued_jobs}, 5}}));
  EXPECT_FALSE(w.run(RemoveQuota{{QuotaScope::user, w.alice.value, QuotaKind::queued_jobs}}));
}

TEST(Quotas, AnArrayIsStoppedAFewElementsAtATime) {
  Crowd w;
  const JobId first(w.core.state().next_job);
  w.must(w.array(w.mallory, "audio", 100));
  StopJob stop{.job = first, .reason = "", .force = false, .elements_max = 30};
  const auto waiting = [&] {
    return w.core.state().count.at(JobState::queued);
  };
  ASSERT_EQ(waiting(), 99u);
  w.must(stop);
  EXPECT_EQ(waiting(), 69u);
  w.must(stop);
  w.must(stop);
  EXPECT_EQ(waiting(), 9u);
  EXPECT_EQ(w.core.state().find_job(JobId(first.value + 1))->stopping, StopCause::none)
      << "what runs is stopped last, so that no sibling takes its place";
  w.must(stop);
  EXPECT_FALSE(w.core.state().count.contains(JobState::queued));
  EXPECT_EQ(w.core.state().find_job(JobId(first.value + 1))->stopping, StopCause::request);
}

// Variables are kept apart from descriptions, once for all jobs with the same ones.
TEST(Quotas, VariablesCountAndTheSameOnesOnce) {
  Crowd w;
  w.set(QuotaScope::user, 0, QuotaKind::spec_bytes, 300'000);
  SubmitJob job = w.array(w.mallory, "audio", 1);
  job.env["BLOB"] = std::string(100'000, 'a');
  for (int i = 0; i < 50; ++i)
    w.must(job);
  job.env["BLOB"] = std::string(100'000, 'b');
  w.must(job);
  job.env["BLOB"] = std::string(100'000, 'c');
  const Status refused = w.run(job);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::exhausted);
  // What ends is given back, with its variables when nobody uses them any more.
  for (const auto& [id, j] : std::map(w.core.state().jobs))
    if (j.state == JobState::queued)
      w.must(StopJob{id, "", false});
  w.must(job);
  w.check_replay();
}

TEST(Quotas, SchedulesAndRevisionsHoldTheirDescriptions) {
  Crowd w;
  w.set(QuotaScope::user, 0, QuotaKind::spec_bytes, 100'000);
  AddSchedule schedule{"nightly", "0 3 * * *", w.array(w.mallory, "audio", 1)};
  schedule.job.spec.argv = {"echo", std::string(60'000, 'x')};
  w.must(schedule);
  schedule.name = "daily";
  EXPECT_FALSE(w.run(schedule));
  DeployEndpoint deploy{.name = "chat", .project = "audio", .user = w.mallory};
  deploy.spec.argv = schedule.job.spec.argv;
  EXPECT_FALSE(w.run(deploy));
  w.must(RemoveSchedule{w.core.state().schedules.begin()->first});
  w.must(deploy);
  EXPECT_FALSE(w.run(deploy)) << "its second revision";
  w.check_replay();
  w.must(DeleteEndpoint{"chat"});
  EXPECT_FALSE(w.core.state().held_by_user.contains(w.mallory));
  EXPECT_FALSE(
      w.core.state().held_by_project.contains(w.core.state().project_by_name("audio")->id));
}

TEST(Quotas, WhatMembersCreateBesidesJobsIsBounded) {
  Crowd w;
  w.set(QuotaScope::user, w.mallory.value, QuotaKind::objects, 3);
  const auto token = [&](int n, Duration life) {
    return w.run(CreateToken{
        .name = "t", .hash = "mallory" + std::to_string(n), .user = "mallory", .life = life});
  };
  ASSERT_TRUE(token(1, hours(1)));
  w.must(AddSchedule{"nightly", "0 3 * * *", w.array(w.mallory, "audio", 1)});
  w.must(SetSecret{"audio", w.mallory, "key", "sealed"});
  const Status full = token(2, hours(1));
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, Code::exhausted);
  EXPECT_NE(full.error().message.find("objects of user mallory"), std::string::npos);
  EXPECT_FALSE(w.run(SetSecret{"audio", w.mallory, "key2", "sealed"}));
  w.must(SetSecret{"audio", w.mallory, "key", "another value"});  // it is there already
  DeployEndpoint deploy{.name = "chat", .project = "audio", .user = w.mallory};
  deploy.spec.argv = {"serve"};
  EXPECT_FALSE(w.run(deploy));
  SavedEnvironment env;
  env.name = "torch";
  env.digest = "d";
  env.path = "/opt/venv";
  EXPECT_FALSE(w.run(SaveEnvironment{"audio", w.mallory, env}));
  Reserve reserve{.project = "audio", .user = w.mallory};
  reserve.resources.gpus = 1;
  reserve.resources.share = {1000, 0};
  reserve.from = w.now + hours(1);
  reserve.until = w.now + hours(2);
  EXPECT_FALSE(w.run(reserve));
  // Of others nothing is taken, and an expired token counts no more.
  w.must(SetSecret{"vision", w.alice, "key", "sealed"});
  w.now = w.now + hours(2);
  ASSERT_TRUE(token(2, hours(1)));
  w.must(RemoveQuota{{QuotaScope::user, w.mallory.value, QuotaKind::objects}});
  w.set(QuotaScope::project, w.core.state().project_by_name("audio")->id.value, QuotaKind::objects,
        3);
  reserve.until = w.now + hours(2);
  w.must(reserve);
  EXPECT_FALSE(w.run(deploy)) << "three in the project";
  w.check_replay();
}

TEST(Quotas, TokensThatExpiredLongAgoDoNotAddUp) {
  Crowd w;
  for (int i = 0; i < 20; ++i) {
    w.must(CreateToken{
        .name = "t", .hash = "h" + std::to_string(i), .user = "mallory", .life = hours(1)});
    w.now = w.now + hours(24 * 3);
  }
  std::size_t kept = 0;
  for (const auto& [id, token] : w.core.state().tokens)
    kept += token.user == w.mallory;
  EXPECT_LE(kept, 4u) << "those of the last week";
}

}  // namespace
}  // namespace billow::control
