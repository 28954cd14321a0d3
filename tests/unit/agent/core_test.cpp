// The agent's logic without processes: single rules first, then all of them under faults.
#include "core/agent/core.h"
#include "agent/task/task_status.h"

#include <gtest/gtest.h>

namespace billow::agent {
namespace {

namespace v1 = wire::agent_v1;

Now at(std::int64_t second) {
  return {WallTime{1'700'000'000'000'000'000 + second * 1'000'000'000},
          SteadyTime{(1000 + second) * 1'000'000'000}};
}

template <class T>
std::vector<T> only(const Effects& effects) {
  std::vector<T> out;
  for (const Effect& e : effects)
    if (const T* t = std::get_if<T>(&e))
      out.push_back(*t);
  return out;
}
template <class M>
std::vector<M> sent(const Effects& effects) {
  std::vector<M> out;
  for (const auto& s : only<effect::Send>(effects))
    if (const M* m = get_if<M>(&s.message))
      out.push_back(*m);
  return out;
}

v1::Start start_of(std::uint64_t id, Epoch epoch = 1) {
  v1::Start s;
  s.epoch = epoch;
  s.task = TaskId(id);
  s.argv = {"true"};
  return s;
}
TaskStatus ended(std::uint64_t id, int code = 0) {
  TaskStatus s;
  s.task = TaskId(id);
  s.state = TaskState::ended;
  s.exit.code = code;
  return s;
}

struct AgentCore : ::testing::Test {
  Core core{CoreOptions{}, at(0)};
  Effects say(const v1::ToAgent& m, std::int64_t second = 0) {
    Effects out;
    core.on_message(m, "", at(second), out);
    EXPECT_EQ(core.check_invariants(), std::nullopt);
    return out;
  }
  Effects happen(const TaskEvent& e, std::int64_t second = 0) {
    Effects out;
    core.on_task_event(e, at(second), out);
    EXPECT_EQ(core.check_invariants(), std::nullopt);
    return out;
  }
  Effects pass_time(std::int64_t second) {
    Effects out;
    core.tick(at(second), out);
    EXPECT_EQ(core.check_invariants(), std::nullopt);
    return out;
  }
  Effects connect(Epoch epoch = 1, std::int64_t second = 0) {
    Effects out;
    core.on_connected(at(second), out);
    core.on_message(v1::Welcome{epoch, NodeId(1), 2000}, "", at(second), out);
    return out;
  }
};

TEST_F(AgentCore, StartsATaskOnceHoweverOftenItIsAsked) {
  connect();
  EXPECT_EQ(only<effect::StartTask>(say(start_of(5))).size(), 1u);
  EXPECT_EQ(only<effect::StartTask>(say(start_of(5))).size(), 0u);
  happen(task_event::Ended{ended(5, 3)});
  const Effects again = say(start_of(5));
  EXPECT_EQ(only<effect::StartTask>(again).size(), 0u);
}

TEST_F(AgentCore, AStartingTaskSaysWhatItWaitsForUntilItRuns) {
  connect();
  say(start_of(5));
  const auto told = sent<v1::Report>(happen(task_event::Waiting{TaskId(5), "pulling x"}));
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].status.waits_for, "pulling x");
  EXPECT_EQ(told[0].status.state, TaskState::starting);
  EXPECT_TRUE(sent<v1::Report>(happen(task_event::Waiting{TaskId(5), "pulling x"})).empty());
  const auto runs = sent<v1::Report>(happen(task_event::Started{TaskId(5), at(1).wall}));
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].status.waits_for, "");
  EXPECT_TRUE(sent<v1::Report>(happen(task_event::Waiting{TaskId(5), "late"})).empty());
}

TEST_F(AgentCore, WhoHasAReplicasPortIsReportedWhenItChangesAndWhenAsked) {
  connect();
  say(start_of(5));
  EXPECT_TRUE(sent<v1::Report>(happen(task_event::PortSeen{TaskId(5), PortHolder::nobody})).empty())
      << "the report that it runs says so";
  const auto runs = sent<v1::Report>(happen(task_event::Started{TaskId(5), at(1).wall}));
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].status.port_holder, PortHolder::nobody);
  const auto has = sent<v1::Report>(happen(task_event::PortSeen{TaskId(5), PortHolder::task}));
  ASSERT_EQ(has.size(), 1u);
  EXPECT_EQ(has[0].status.port_holder, PortHolder::task);
  EXPECT_TRUE(sent<v1::Report>(happen(task_event::PortSeen{TaskId(5), PortHolder::task})).empty());
  const auto look = only<effect::LookAtPort>(say(v1::LookAtPort{TaskId(5), 77}));
  ASSERT_EQ(look.size(), 1u);
  const auto answer =
      sent<v1::Report>(happen(task_event::PortSeen{TaskId(5), PortHolder::task, look[0].number}));
  ASSERT_EQ(answer.size(), 1u) << "nothing has changed, and somebody waits for that word";
  EXPECT_EQ(answer[0].status.port_look, 77u);
  EXPECT_TRUE(only<effect::LookAtPort>(say(v1::LookAtPort{TaskId(6), 78})).empty());
}

TEST_F(AgentCore, AReplicaWhosePortSomebodyElseHasIsEnded) {
  connect();
  say(start_of(5));
  happen(task_event::Started{TaskId(5), at(1).wall});
  const Effects out = happen(task_event::PortSeen{TaskId(5), PortHolder::other});
  ASSERT_EQ(only<effect::StopTask>(out).size(), 1u);
  EXPECT_EQ(only<effect::StopTask>(out)[0].reason, StopReason::port_taken);
  ASSERT_EQ(sent<v1::Report>(out).size(), 1u);
  EXPECT_EQ(sent<v1::Report>(out)[0].status.port_holder, PortHolder::other);
  supervise::ExitRecord record{};
  record.cause = static_cast<std::uint32_t>(supervise::EndCause::stop_request);
  record.stop_reason = static_cast<std::uint32_t>(StopReason::port_taken);
  const TaskStatus status = status_of(TaskId(5), record);
  EXPECT_EQ(status.exit.kind, ExitKind::exec_failed)
      << "it has failed, and was not stopped by anybody";
  EXPECT_TRUE(status.exit.port_taken);
}

TEST_F(AgentCore, IgnoresEverythingBeforeWelcome) {
  Effects out;
  core.on_connected(at(0), out);
  EXPECT_EQ(sent<v1::Hello>(out).size(), 1u);
  EXPECT_TRUE(say(start_of(5)).empty());
}

// As a program of protocol 2 meets heads of 1, 2 and 3.
TEST(AgentVersions, SaysTheNewestItSpeaksAndTakesUpNoOther) {
  for (const int answered : {1, 2, 3, 0}) {
    CoreOptions options;
    options.protocol = 2;
    Core core{options, at(0)};
    Effects out;
    core.on_connected(at(0), out);
    ASSERT_EQ(sent<v1::Hello>(out).size(), 1u);
    EXPECT_EQ(sent<v1::Hello>(out)[0].version, 2);
    EXPECT_EQ(sent<v1::Hello>(out)[0].version_min, v1::protocol_version_min);
    out.clear();
    core.on_message(v1::Welcome{1, NodeId(1), 2000, answered}, "", at(0), out);
    core.on_message(start_of(5), "", at(0), out);
    const bool spoken = answered == 1 || answered == 2;
    EXPECT_EQ(only<effect::StartTask>(out).size(), spoken ? 1u : 0u) << answered;
    EXPECT_EQ(only<effect::Disconnect>(out).size(), spoken ? 0u : 1u) << answered;
  }
}

TEST_F(AgentCore, RemembersAHigherEpochBeforeActingAndRefusesALowerOne) {
  connect(3);
  const Effects effects = say(start_of(5, 7));
  ASSERT_GE(effects.size(), 2u);
  ASSERT_TRUE(std::holds_alternative<effect::Remember>(effects[0]));
  EXPECT_EQ(std::get<effect::Remember>(effects[0]).memory.epoch, 7u);
  EXPECT_TRUE(std::holds_alternative<effect::StartTask>(effects[1]));
  const Effects refused = say(start_of(6, 6));
  EXPECT_TRUE(only<effect::StartTask>(refused).empty());
  EXPECT_EQ(only<effect::Disconnect>(refused).size(), 1u);
  EXPECT_EQ(only<effect::Disconnect>(connect(6)).size(), 1u);
  EXPECT_FALSE(core.welcomed());
}

TEST_F(AgentCore, ReportsUntilAcknowledgedAndKeepsTheNewestOnly) {
  connect();
  say(start_of(5));
  const auto running = sent<v1::Report>(happen(task_event::Started{TaskId(5), at(1).wall}));
  ASSERT_EQ(running.size(), 1u);
  const auto end = sent<v1::Report>(happen(task_event::Ended{ended(5, 3)}));
  ASSERT_EQ(end.size(), 1u);
  EXPECT_GT(end[0].number, running[0].number);
  say(v1::Ack{running[0].number});
  EXPECT_EQ(core.unacknowledged_count(), 1u);
  const auto resent = sent<v1::Report>(pass_time(20));
  ASSERT_EQ(resent.size(), 1u);
  EXPECT_EQ(resent[0].number, end[0].number);
  EXPECT_EQ(resent[0].status.exit.code, 3);
  EXPECT_EQ(only<effect::AcknowledgeTask>(say(v1::Ack{end[0].number})).size(), 1u);
  EXPECT_TRUE(pass_time(60).empty());
}

TEST_F(AgentCore, HelloListsEveryTaskTheHeadMayNotKnow) {
  connect();
  say(start_of(5));
  say(start_of(6));
  say(start_of(7));
  happen(task_event::Ended{ended(5, 1)});
  const auto end = sent<v1::Report>(happen(task_event::Ended{ended(6)}));
  say(v1::Ack{end[0].number});  // covers 5 and 6
  core.on_disconnected(at(1));
  happen(task_event::Started{TaskId(7), at(2).wall});
  Effects out;
  core.on_connected(at(3), out);
  const auto hello = sent<v1::Hello>(out);
  ASSERT_EQ(hello.size(), 1u);
  ASSERT_EQ(hello[0].tasks.size(), 1u);
  EXPECT_EQ(hello[0].tasks[0].task, TaskId(7));
  EXPECT_EQ(hello[0].tasks[0].state, TaskState::running);
}

TEST_F(AgentCore, AnEndFoundOnDiskIsReportedUntilAcknowledged) {
  CoreOptions options;
  options.tasks = {{ended(9, 4), false, false, {}}, {ended(8), true, false, {}}};
  core = Core(std::move(options), at(0));
  const Effects out = connect();
  ASSERT_EQ(sent<v1::Hello>(out)[0].tasks.size(), 1u);
  const auto reports = sent<v1::Report>(out);
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].status.task, TaskId(9));
  EXPECT_EQ(only<effect::AcknowledgeTask>(say(v1::Ack{reports[0].number})).size(), 1u);
}

TEST_F(AgentCore, KeepsAcknowledgedDirectoriesForTheirRetentionAndNeverStartsThemAgain) {
  connect();
  say(start_of(5));
  const auto end = sent<v1::Report>(happen(task_event::Ended{ended(5)}));
  say(v1::Ack{end[0].number}, 10);
  EXPECT_TRUE(
      only<effect::RemoveTask>(pass_time(limits::task_retention.ns / 1'000'000'000)).empty());
  EXPECT_EQ(
      only<effect::RemoveTask>(pass_time(limits::task_retention.ns / 1'000'000'000 + 11)).size(),
      1u);
  EXPECT_TRUE(only<effect::StartTask>(say(start_of(5))).empty());
}

TEST_F(AgentCore, OnAFullDiskTheTasksThatEndedFirstGoAndTheNewestStay) {
  connect();
  for (std::uint64_t task = 1; task <= 14; ++task) {
    say(start_of(task));
    const auto end = sent<v1::Report>(happen(task_event::Ended{ended(task)}));
    say(v1::Ack{end[0].number}, 10);
  }
  const auto removed = [&] {
    Effects out;
    core.on_disk_low(out);
    std::vector<std::uint64_t> ids;
    for (const auto& one : only<effect::RemoveTask>(out))
      ids.push_back(one.task.value);
    return ids;
  };
  EXPECT_EQ(removed(), (std::vector<std::uint64_t>{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(removed(), (std::vector<std::uint64_t>{9, 10}));
  EXPECT_TRUE(removed().empty());
  EXPECT_TRUE(only<effect::StartTask>(say(start_of(1))).empty()) << "never run twice";
}

TEST_F(AgentCore, AStopThatOvertakesItsStartWins) {
  connect();
  const auto reports = sent<v1::Report>(say(v1::Stop{1, TaskId(5), seconds(1)}));
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].status.exit.kind, ExitKind::stopped);
  EXPECT_TRUE(only<effect::StartTask>(say(start_of(5))).empty());
  say(v1::Ack{reports[0].number});
  EXPECT_TRUE(only<effect::StartTask>(say(start_of(5))).empty());
}

TEST_F(AgentCore, StopsWhatTheHeadDisowns) {
  connect();
  say(start_of(5));
  v1::Settle settle;
  settle.epoch = 1;
  settle.unknown = {TaskId(5)};
  const auto stops = only<effect::StopTask>(say(settle));
  ASSERT_EQ(stops.size(), 1u);
  EXPECT_EQ(stops[0].reason, StopReason::disowned);
  EXPECT_TRUE(only<effect::StopTask>(say(settle)).empty());
}

TEST_F(AgentCore, WithoutAHeadOnlyFencedTasksStop) {
  connect();
  v1::Start fenced = start_of(5);
  fenced.fenced = true;
  say(fenced);
  say(start_of(6));
  core.on_disconnected(at(1));
  EXPECT_TRUE(pass_time(59).empty());
  const auto stops = only<effect::StopTask>(pass_time(61));
  ASSERT_EQ(stops.size(), 1u);
  EXPECT_EQ(stops[0].task, TaskId(5));
  EXPECT_EQ(stops[0].reason, StopReason::fenced);
}

TEST_F(AgentCore, AQuietConnectionIsNoReasonToFence) {
  connect();
  v1::Start fenced = start_of(5);
  fenced.fenced = true;
  say(fenced);
  for (std::int64_t second = 1; second <= 600; ++second)
    EXPECT_TRUE(only<effect::StopTask>(pass_time(second)).empty()) << second;
  core.on_disconnected(at(600));
  EXPECT_EQ(only<effect::StopTask>(pass_time(661)).size(), 1u);
}

// The agent itself may be away when the fence falls: the supervisor has been told beforehand, and
// is told again as it moves.
TEST_F(AgentCore, ASupervisorKnowsTheFenceBeforeItIsNeeded) {
  connect();
  v1::Start fenced = start_of(5);
  fenced.fenced = true;
  EXPECT_EQ(only<effect::StartTask>(say(fenced, 0))[0].ends_at, at(60).steady);
  EXPECT_TRUE(only<effect::SetEndsAt>(pass_time(5)).empty());
  say(v1::LeaseRenew{1, {}, {}}, 20);  // a sign of life
  const auto moved = only<effect::SetEndsAt>(pass_time(21));
  ASSERT_EQ(moved.size(), 1u);
  EXPECT_EQ(moved[0].ends_at, at(80).steady);
  EXPECT_EQ(only<effect::StartTask>(say(start_of(6), 22))[0].ends_at, SteadyTime{});
}

TEST_F(AgentCore, TheFenceCutsALongGraceShort) {
  connect();
  v1::Start fenced = start_of(5);
  fenced.fenced = true;
  say(fenced);
  say(v1::Stop{1, TaskId(5), hours(1)});
  core.on_disconnected(at(1));
  const auto stops = only<effect::StopTask>(pass_time(61));
  ASSERT_EQ(stops.size(), 1u);
  EXPECT_EQ(stops[0].grace, limits::fence_grace);
  EXPECT_TRUE(only<effect::StopTask>(pass_time(62)).empty());
}

// A frame of 4 MiB names one task two million times; each effect takes about a kilobyte.
TEST_F(AgentCore, ALeaseIsRenewedOnceHoweverOftenItIsNamed) {
  connect();
  say(start_of(5));
  const Effects out = say(v1::LeaseRenew{1, std::vector<TaskId>(1000, TaskId(5)), seconds(30)});
  EXPECT_EQ(only<effect::SetEndsAt>(out).size(), 1u);
  const auto ends = only<effect::SetEndsAt>(say(v1::LeaseRenew{1, {TaskId(5)}, {INT64_MAX}}));
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_GT(ends[0].ends_at, at(0).steady) << "never a time in the past";
}

TEST_F(AgentCore, StopsWhenPaidTimePassesUnlessRenewed) {
  connect();
  v1::Start paid = start_of(5);
  paid.paid_for = seconds(30);
  const auto starts = only<effect::StartTask>(say(paid, 0));
  ASSERT_EQ(starts.size(), 1u);
  EXPECT_EQ(starts[0].paid_until, at(30).steady);
  v1::LeaseRenew renew{1, {TaskId(5)}, seconds(30)};
  EXPECT_EQ(only<effect::SetEndsAt>(say(renew, 20))[0].ends_at, at(50).steady);
  EXPECT_TRUE(only<effect::StopTask>(pass_time(49)).empty());
  EXPECT_EQ(only<effect::StopTask>(pass_time(50))[0].reason, StopReason::unpaid);
  EXPECT_TRUE(only<effect::SetEndsAt>(say(renew, 51)).empty());  // too late
}

TEST_F(AgentCore, SuspendsAndResumes) {
  connect();
  say(start_of(5));
  happen(task_event::Started{TaskId(5), at(1).wall});
  EXPECT_EQ(only<effect::SuspendTask>(say(v1::Suspend{1, TaskId(5), 1, SuspendMode::cold}))[0].mode,
            SuspendMode::cold);
  EXPECT_TRUE(only<effect::SuspendTask>(say(v1::Suspend{1, TaskId(5), 1})).empty());  // sent twice
  happen(task_event::Suspended{TaskId(5), 1, 512, ""});
  EXPECT_EQ(core.find(TaskId(5))->state, TaskState::suspended);
  EXPECT_EQ(core.find(TaskId(5))->ram_mib, 512);
  EXPECT_EQ(only<effect::ResumeTask>(say(v1::Resume{1, TaskId(5), 2, {}})).size(), 1u);
  EXPECT_TRUE(only<effect::SuspendTask>(say(v1::Suspend{1, TaskId(5), 1})).empty());  // late
  happen(task_event::Resumed{TaskId(5), 2, ""});
  EXPECT_EQ(core.find(TaskId(5))->state, TaskState::running);
}

// The lease ends with the suspension: without a mark all of it would count as active.
TEST_F(AgentCore, SaysWhatItMeasuredBeforeATaskIsReportedAsSuspended) {
  connect();
  say(start_of(5));
  happen(task_event::Started{TaskId(5), at(1).wall});
  for (std::int64_t second = 2; second < 300; second += 2) {
    TaskSample sample;
    sample.idle.at = at(second).steady;
    sample.idle.gpus.resize(1);
    sample.idle.gpus[0].sm_active_pct = 0;
    sample.idle.gpus[0].util_pct = 0;
    sample.idle.gpus[0].dram_active_pct = 0;
    sample.idle.gpus[0].pcie_bytes_s = 0;
    sample.idle.gpus[0].mem_used_mib = 500;
    sample.idle.cpu_ns = sample.idle.io_bytes = sample.idle.page_faults = 0;
    sample.idle.net_rx_bytes = sample.idle.net_tx_bytes = 0;
    sample.idle.rss_mib = 100;
    sample.idle.processes = 1;
    Effects out;
    core.on_sample(TaskId(5), sample, at(second), out);
  }
  say(v1::Suspend{1, TaskId(5), 1, SuspendMode::cold}, 300);
  const Effects out = happen(task_event::Suspended{TaskId(5), 1, 512, ""}, 301);
  const auto marks = sent<v1::MeterMark>(out);
  ASSERT_EQ(marks.size(), 1u);
  ASSERT_EQ(marks[0].marks.size(), 1u);
  EXPECT_EQ(marks[0].marks[0].task, TaskId(5));
  EXPECT_LE(marks[0].marks[0].meter.active, seconds(60));
  ASSERT_EQ(sent<v1::Report>(out).size(), 1u);
  const auto messages = only<effect::Send>(out);
  EXPECT_NE(get_if<v1::MeterMark>(&messages.front().message), nullptr);
}

TEST_F(AgentCore, KeepsRunningWhatCannotBeSuspended) {
  connect();
  say(start_of(5));
  happen(task_event::Started{TaskId(5), at(1).wall});
  say(v1::Suspend{1, TaskId(5), 1});
  happen(task_event::Suspended{TaskId(5), 1, 0, "no room in the arena"});
  EXPECT_EQ(core.find(TaskId(5))->state, TaskState::running);
  EXPECT_EQ(core.find(TaskId(5))->order_error, "no room in the arena");
  EXPECT_EQ(only<effect::SuspendTask>(say(v1::Suspend{1, TaskId(5), 2})).size(), 1u);
  EXPECT_TRUE(core.find(TaskId(5))->order_error.empty());
  happen(task_event::Suspended{TaskId(5), 1, 0, ""});  // the answer to an earlier order
  EXPECT_EQ(core.find(TaskId(5))->state, TaskState::suspending);
}

// A start that the head sent before it knew would be lost with the node, and its job with it.
TEST_F(AgentCore, LeavesAReclaimedNodeOnlyWhenTheHeadSendsNothingMoreThere) {
  connect();
  Effects out;
  core.on_reclaimed("evicted", at(1), out);
  EXPECT_EQ(sent<v1::Reclaimed>(out).size(), 1u);
  const auto notice = sent<v1::Report>(out);  // about no task: only its acknowledgement matters
  ASSERT_EQ(notice.size(), 1u);
  EXPECT_FALSE(notice[0].status.task);
  EXPECT_FALSE(core.may_leave());
  const auto refused = sent<v1::Report>(say(start_of(5)));  // on its way when the notice was sent
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_TRUE(refused[0].status.never_began);
  say(v1::Ack{notice[0].number});
  EXPECT_FALSE(core.may_leave());
  say(v1::Ack{refused[0].number});
  EXPECT_TRUE(core.may_leave());
}

TEST_F(AgentCore, TellsAHeadThatWasAwayThatTheNodeIsReclaimed) {
  connect();
  core.on_disconnected(at(1));
  Effects out;
  core.on_reclaimed("evicted", at(2), out);
  EXPECT_TRUE(only<effect::Send>(out).empty());
  EXPECT_FALSE(core.may_leave());
  const Effects told = connect(2, 3);
  EXPECT_EQ(sent<v1::Reclaimed>(told).size(), 1u);
  const auto notice = sent<v1::Report>(told);
  ASSERT_EQ(notice.size(), 1u);
  EXPECT_FALSE(core.may_leave());
  say(v1::Ack{notice[0].number}, 3);
  EXPECT_TRUE(core.may_leave());
}

TEST_F(AgentCore, LeavesAReclaimedNodeAtOnceIfNoHeadEverKnewIt) {
  Effects out;
  core.on_reclaimed("evicted", at(1), out);
  EXPECT_TRUE(core.may_leave());
}

TEST_F(AgentCore, LeavesAfterItsTasksWhenAskedTo) {
  connect();
  say(start_of(5));
  const Effects out = say(v1::Leave{true});
  EXPECT_EQ(only<effect::StopTask>(out).size(), 1u);
  EXPECT_TRUE(only<effect::EndSelf>(out).empty());
  EXPECT_EQ(only<effect::EndSelf>(happen(task_event::Ended{ended(5)})).size(), 1u);
}

}  // namespace
}  // namespace billow::agent
