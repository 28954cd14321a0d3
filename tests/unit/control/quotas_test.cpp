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
      must(AddUser{.name = name, .unix_name = name, .role = Role::member});
    for (const char* project : {"audio", "vision"})
      must(AddProject{project, 100});
    must(SetMember{"audio", "mallory", Role::member});
    must(SetMember{"vision", "alice", Role::member});
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

}  // namespace
}  // namespace billow::control
