// Who is told of what, and what waits to be sent. Labels of jobs, which people change later.
#include "core/control/decide/notices.h"
#include "world.h"

namespace billow::control {
namespace {

struct Notices : testing::Test {
  Fleet w;
  UserId ana, ben;
  Notices() {
    ana = w.core.state().users.begin()->first;
    w.join("gpu-1", 2);
    w.must(AddUser{.name = "ben"});
    ben = w.core.state().user_by_name("ben")->id;
  }
  std::uint64_t add(UserId user, std::vector<NoticeOn> on, NoticeVia via = NoticeVia::slack) {
    const std::uint64_t id = w.core.state().notices.next_target;
    w.must(AddNoticeTarget{{.id = id, .user = user, .via = via, .to = "host", .on = std::move(on)},
                           "sealed"});
    return id;
  }
  std::vector<std::string> titles(std::uint64_t target) const {
    std::vector<std::string> out;
    const auto& waiting = w.core.state().notices.waiting;
    if (const auto found = waiting.find(target); found != waiting.end())
      for (const PersonalNotice& notice : found->second)
        out.push_back(notice.title);
    return out;
  }
  void end(JobId id, int code) {
    w.report(w.task_of(id), TaskState::running);
    w.report(w.task_of(id), TaskState::ended, {.kind = ExitKind::exited, .code = code});
  }
};

TEST_F(Notices, TellTheOwnerAndNobodyElse) {
  const auto mine = add(ana, {NoticeOn::ends});
  const auto bens = add(ben, {NoticeOn::ends});
  const auto failures = add(ana, {NoticeOn::fails});
  SubmitJob job = w.job();
  job.spec.name = "train";
  const JobId first = w.submit(job), second = w.submit(job);
  end(first, 0);
  end(second, 3);
  EXPECT_EQ(titles(mine),
            (std::vector<std::string>{"train (job 1) succeeded", "train (job 2) failed"}));
  EXPECT_EQ(titles(failures), (std::vector<std::string>{"train (job 2) failed"}));
  EXPECT_TRUE(titles(bens).empty());
  w.check_replay();
}

TEST_F(Notices, AreRemovedWhenTheyWereSentAndNotBefore) {
  const auto target = add(ana, {NoticeOn::ends});
  end(w.submit(w.job()), 0);
  const Seq first = w.core.state().notices.waiting.at(target).back().seq;
  end(w.submit(w.job()), 0);
  w.must(RecordNoticesSent{{target, first, ""}});
  EXPECT_EQ(titles(target), (std::vector<std::string>{"job 2 succeeded"}));
  w.must(RecordNoticesSent{{target, w.core.state().seq, "the receiver answered 404"}});
  EXPECT_TRUE(w.core.state().notices.waiting.empty());
  EXPECT_EQ(w.core.state().notices.targets.at(target).trouble, "the receiver answered 404");
  w.check_replay();
}

TEST_F(Notices, OfAnArrayComeOnce) {
  const auto target = add(ana, {NoticeOn::ends});
  SubmitJob job = w.job();
  job.spec.array = ArraySpec{.first = 0, .last = 1};
  const JobId array = w.submit(job);
  end(JobId(array.value + 1), 0);
  EXPECT_TRUE(titles(target).empty());
  end(JobId(array.value + 2), 1);
  EXPECT_EQ(titles(target), (std::vector<std::string>{"array 1 failed"}));
  EXPECT_TRUE(
      w.core.state().notices.waiting.at(target).front().text.starts_with("1 of 2 jobs succeeded"));
}

TEST_F(Notices, OfWaitingJobsComeTogetherAndOnce) {
  const auto target = add(ana, {NoticeOn::waits});
  w.submit(w.job(2));
  w.submit(w.job(2));
  w.submit(w.job(2));
  w.must(NoticeTick{});
  EXPECT_TRUE(titles(target).empty());
  w.now = w.now + hours(1) + seconds(1);
  w.must(NoticeTick{});
  EXPECT_EQ(titles(target), (std::vector<std::string>{"2 of your jobs are still waiting"}));
  w.must(NoticeTick{});
  EXPECT_EQ(titles(target).size(), 1U) << "told once";
  w.check_replay();
}

TEST_F(Notices, OfIdleJobsReachTheirOwner) {
  const auto mine = add(ana, {NoticeOn::idle});
  const auto bens = add(ben, {NoticeOn::idle});
  const JobId id = w.submit(w.job());
  w.report(w.task_of(id), TaskState::running);
  std::vector<EventBody> events;
  add_personal_notices(
      w.core.state(),
      IdleWarned{
          .task = w.task_of(id), .job = id, .action = IdleAction::warn, .text = "idle 12m: SM 0 %"},
      events);
  ASSERT_EQ(events.size(), 1U);
  const auto& notice = get<NoticeQueued>(events.front()).notice;
  EXPECT_EQ(notice.target, mine);
  EXPECT_NE(notice.target, bens);
  EXPECT_EQ(notice.title, "job 1 is idle");
  EXPECT_EQ(notice.text, "idle 12m: SM 0 %");
}

TEST_F(Notices, OfBudgetsReachThoseWhoMaySeeThem) {
  const auto admins = add(ana, {NoticeOn::budget});
  const auto bens = add(ben, {NoticeOn::budget});
  const auto told = [&](BudgetKey key, std::int32_t pct) {
    std::vector<EventBody> events;
    add_personal_notices(w.core.state(),
                         BudgetWarned{key, {}, BudgetAction::warn, pct, "80 % is spent"}, events);
    std::set<std::uint64_t> out;
    for (const EventBody& event : events)
      out.insert(get<NoticeQueued>(event).notice.target);
    return out;
  };
  const std::uint64_t project = w.core.state().projects.begin()->first.value;
  const BudgetKey of_project{BudgetScope::project, project, BudgetPeriod::monthly};
  EXPECT_EQ(told(of_project, 80), (std::set<std::uint64_t>{admins}));
  EXPECT_TRUE(told(of_project, 50).empty()) << "only from 80 % on";
  const BudgetKey of_ben{BudgetScope::user, ben.value, BudgetPeriod::monthly};
  EXPECT_EQ(told(of_ben, 100), (std::set<std::uint64_t>{admins, bens}));
}

TEST_F(Notices, TargetsHaveLimitsAndAnOwner) {
  const auto target = add(ana, {NoticeOn::ends});
  EXPECT_FALSE(w.run(RemoveNoticeTarget{ben, target}));
  EXPECT_FALSE(w.run(ChangeNoticeTarget{ben, target, {NoticeOn::ends}, hours(1), 80}));
  EXPECT_FALSE(w.run(ChangeNoticeTarget{ana, target, {}, hours(1), 80}));
  EXPECT_FALSE(w.run(ChangeNoticeTarget{ana, target, {NoticeOn::waits}, seconds(1), 80}));
  for (std::size_t i = 1; i < limits::notice_targets_per_user_max; ++i)
    add(ana, {NoticeOn::ends});
  EXPECT_FALSE(w.run(AddNoticeTarget{{.id = w.core.state().notices.next_target,
                                      .user = ana,
                                      .to = "one too many",
                                      .on = {NoticeOn::ends}},
                                     ""}));
  w.must(RemoveNoticeTarget{ana, target});
  EXPECT_FALSE(w.core.state().secrets.contains({ProjectId{}, notice_secret(target)}));
  w.check_replay();
}

TEST_F(Notices, ToAnUnconfirmedAddressAreNotKept) {
  const std::uint64_t id = w.core.state().notices.next_target;
  w.must(AddNoticeTarget{{.id = id,
                          .user = ana,
                          .via = NoticeVia::email,
                          .to = "ana@example.org",
                          .on = {NoticeOn::ends},
                          .confirmed = false},
                         ""});
  end(w.submit(w.job()), 0);
  EXPECT_TRUE(titles(id).empty());
  w.must(ConfirmNoticeTarget{ana, id});
  end(w.submit(w.job()), 0);
  EXPECT_EQ(titles(id).size(), 1U);
}

TEST_F(Notices, OfAUserWhoLeavesGo) {
  add(ben, {NoticeOn::ends});
  w.must(SetUser{.name = "ben", .state = UserState::removed});
  EXPECT_TRUE(w.core.state().notices.targets.empty());
  w.check_replay();
}

TEST_F(Notices, LabelsOfArraysAndOfTheirElements) {
  SubmitJob job = w.job();
  job.spec.labels = {{"team", "nlp"}};
  job.spec.array = ArraySpec{.first = 0, .last = 1};
  const JobId array = w.submit(job);
  const JobId single = w.submit(w.job());
  w.must(LabelJobs{.jobs = {array, single}, .ended = {}, .set = {{"a", "1"}}, .remove = {"team"}});
  const std::map<std::string, std::string> expected{{"a", "1"}};
  EXPECT_EQ(w.core.state().arrays.at(array).spec->labels, expected);
  EXPECT_EQ(w.core.state().find_job(JobId(array.value + 2))->spec->labels, expected);
  EXPECT_EQ(w.core.state().find_job(single)->spec->labels, expected);
  w.check_replay();
  // One element differs from the others, in an image too.
  w.must(LabelJobs{
      .jobs = {JobId(array.value + 1)}, .ended = {}, .set = {{"best", "yes"}}, .remove = {}});
  EXPECT_EQ(w.core.state().find_job(JobId(array.value + 1))->spec->labels.size(), 2U);
  EXPECT_EQ(w.core.state().find_job(JobId(array.value + 2))->spec->labels, expected);
  w.check_replay();
  EXPECT_FALSE(w.run(
      LabelJobs{.jobs = {single}, .ended = {}, .set = {{"billow.endpoint", "x"}}, .remove = {}}));
  EXPECT_FALSE(
      w.run(LabelJobs{.jobs = {JobId(999)}, .ended = {}, .set = {{"a", "b"}}, .remove = {}}));
}

}  // namespace
}  // namespace billow::control
