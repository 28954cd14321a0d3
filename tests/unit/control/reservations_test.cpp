// Reservations as those meet them who run beside or inside one: whom it asks to leave, what it
// leaves to others, what it refuses, and what becomes of work that still waits inside when it is
// over.
#include "core/control/money.h"
#include "world.h"

namespace billow::control {
namespace {

SubmitJob inside(SubmitJob job, std::uint64_t reservation = 1) {
  job.spec.reservation = ReservationId(reservation);
  return job;
}
Reserve part(Reserve r, int milli) {
  r.resources.share.milli = milli;
  return r;
}
const Reservation& made(const Fleet& w) {
  return w.core.state().reservations.rbegin()->second;
}

TEST(Reservations, TakeFreeCapacityBeforePreempting) {
  Fleet w;
  w.join("n1", 4);
  SubmitJob spot = w.job(2);
  spot.spec.spot = true;
  const JobId runs = w.submit(spot);
  w.report(w.task_of(runs), TaskState::running);
  for (int n = 0; n < 2; ++n) {
    w.must(part(w.reserve(1, Duration{}, minutes(10)), 500));
    for (const GpuGrant& g : made(w).places.at(0).gpus)
      for (const GpuGrant& held : w.core.state().find_task(w.task_of(runs))->gpus)
        EXPECT_NE(g.gpu, held.gpu);
  }
  w.must(w.reserve(1, Duration{}, minutes(10)));
  w.wait(seconds(5));
  EXPECT_EQ(w.core.state().find_job(runs)->suspension.phase, SuspendPhase::none)
      << "there was room beside it";
  w.must(w.reserve(1, Duration{}, minutes(10)));  // nothing is free any more
  w.wait(seconds(5));
  EXPECT_EQ(w.core.state().find_job(runs)->suspension.phase, SuspendPhase::suspending);
  w.check_replay();
}

TEST(Reservations, PreemptJobsThatLoseLeast) {
  Fleet w;
  w.join("n1", 1);
  w.join("n2", 1);
  SubmitJob spot = w.job(1);
  spot.spec.spot = true;
  spot.spec.suspendable = Suspendable::no;
  const JobId older = w.submit(spot);
  w.report(w.task_of(older), TaskState::running);
  w.wait(hours(5));
  const JobId newer = w.submit(spot);
  w.report(w.task_of(newer), TaskState::running);
  w.wait(minutes(5));
  const NodeId there = w.node_of(newer);
  w.must(w.reserve(1, minutes(1), minutes(10)));
  EXPECT_EQ(made(w).places.at(0).node, there) << "five hours of work are on the other";
}

TEST(Reservations, LeaveCoresAndMemoryForJobsWithoutGpus) {
  Fleet w;
  w.join("n1", 2);  // 16 cores, 64 GiB
  w.must(w.reserve(2, Duration{}, hours(1)));
  EXPECT_EQ(made(w).places.at(0).cpu_milli, 14'000);
  EXPECT_EQ(made(w).places.at(0).mem_mib, 57'344);
  SubmitJob cpu = w.job(0);
  cpu.spec.resources.cpu_milli = 2000;
  cpu.spec.resources.mem_mib = 8192;
  EXPECT_EQ(w.state(w.submit(cpu)), JobState::running);
  EXPECT_EQ(w.state(w.submit(cpu)), JobState::queued);
  Reserve all = w.reserve(2, hours(2), hours(1));  // unless it is asked for
  all.resources.cpu_milli = 16'000;
  EXPECT_FALSE(w.run(all)) << "a job without a time limit is on two of them";
}

TEST(Reservations, RefuseJobsThatCouldNeverFit) {
  Fleet w;
  w.join("n1", 4);
  w.must(part(w.reserve(1, Duration{}, hours(1)), 500));
  const Status large = w.run(inside(w.job(1)));
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().code, Code::infeasible);
  EXPECT_NE(large.error().message.find("needs 1 GPU, 0.025 CPUs; reservation 1 holds 0.5 GPUs"),
            std::string::npos)
      << large.error().message;
  EXPECT_FALSE(large.error().hint.empty());
  SubmitJob whole = w.job(0);
  whole.spec.resources.whole_node = true;
  EXPECT_FALSE(w.run(inside(whole)));
  SubmitJob elsewhere = w.job(0.5);
  elsewhere.spec.place.regions = {"mars"};
  EXPECT_FALSE(w.run(inside(elsewhere)));
  DeployEndpoint endpoint;
  endpoint.name = "chat";
  endpoint.user = w.core.state().users.begin()->first;
  endpoint.spec = inside(w.job(0.5)).spec;
  EXPECT_FALSE(w.run(endpoint)) << "it would outlive the reservation";
  EXPECT_EQ(w.state(w.submit(inside(w.job(0.5)))), JobState::running);
  const JobId second = w.submit(inside(w.job(0.5)));
  ASSERT_EQ(w.state(second), JobState::queued);
  const auto why = sched::explain(w.core.state().index, second, w.now);
  EXPECT_EQ(why.reasons.at(0).kind, sched::ReasonKind::no_capacity);
  EXPECT_NE(why.reasons.at(0).text.find("Job 1 uses too much of reservation 1"), std::string::npos)
      << why.reasons.at(0).text;
}

// Its job was submitted at one price; when the reservation is over nobody decides for its user that
// another will do.
TEST(Reservations, JobsWaitingInsideDoNotBecomeOnDemandAtItsEnd) {
  Fleet w;
  w.join("n1", 2);
  w.must(w.reserve(1, Duration{}, hours(1)));
  const JobId runs = w.submit(inside(w.job(1))), waits = w.submit(inside(w.job(1)));
  SubmitJob more = inside(w.job(1));
  more.spec.array = ArraySpec{.first = 0, .last = 2, .step = 1};
  const JobId array = w.submit(more);
  ASSERT_EQ(w.state(runs), JobState::running);
  w.wait(hours(1) + seconds(1));
  ASSERT_TRUE(w.core.state().reservations.empty());
  EXPECT_EQ(w.state(runs), JobState::running);
  EXPECT_EQ(w.state(waits), JobState::queued)
      << "a GPU is free, but not at the price it was submitted at";
  const auto why = sched::explain(w.core.state().index, waits, w.now);
  EXPECT_EQ(why.reasons.at(0).kind, sched::ReasonKind::held);
  EXPECT_NE(why.reasons.at(0).text.find("Its reservation 1 has ended"), std::string::npos);
  EXPECT_NE(why.would_start_now.find("billow resume 2 --on-demand"), std::string::npos)
      << why.would_start_now;
  EXPECT_FALSE(sched::forecast(w.core.state().index, waits, w.now));
  EXPECT_FALSE(w.run(ResumeJob{waits})) << "that is not to ask for another price";
  EXPECT_FALSE(w.run(ResumeJob{array}));
  EXPECT_FALSE(w.run(ResumeJob{runs, true})) << "it runs already";
  w.check_replay();

  w.must(ResumeJob{waits, true});
  ASSERT_EQ(w.state(waits), JobState::running);
  const Task& task = *w.core.state().find_task(w.task_of(waits));
  EXPECT_EQ(task.price_class, PriceClass::on_demand);
  EXPECT_EQ(task.rate.nano_usd_per_s, 1'000'000);
  w.must(ResumeJob{array, true});
  w.report(w.task_of(waits), TaskState::ended);
  EXPECT_EQ(w.state(JobId(array.value + 1)), JobState::running);
  w.must(StopJob{JobId(array.value + 3), "", false});
  w.check_replay();
}

// A job may also leave one that lasts; and what was suspended inside comes back inside, or not by
// itself.
TEST(Reservations, JobsLeaveThemOnlyOnRequest) {
  Fleet w;
  w.join("n1", 2);
  w.must(w.reserve(1, Duration{}, hours(1)));
  const JobId runs = w.submit(inside(w.job(1))), waits = w.submit(inside(w.job(1)));
  w.report(w.task_of(runs), TaskState::running);
  w.must(ResumeJob{waits, true});
  ASSERT_EQ(w.state(waits), JobState::running);
  EXPECT_EQ(w.core.state().find_task(w.task_of(waits))->price_class, PriceClass::on_demand);
  w.must(SuspendJob{runs});
  const auto order = [&] {
    return w.core.state().find_job(runs)->suspension.order;
  };
  w.must(AgentReport{w.node_of(runs),
                     {.task = w.task_of(runs),
                      .state = TaskState::suspended,
                      .started_at = w.now,
                      .order = order(),
                      .order_at = w.now}});
  ASSERT_EQ(w.state(runs), JobState::suspended);
  w.wait(hours(2));
  EXPECT_FALSE(w.run(ResumeJob{runs}));
  EXPECT_EQ(w.state(runs), JobState::suspended);
  w.must(ResumeJob{runs, true});
  EXPECT_EQ(w.state(runs), JobState::running);
  EXPECT_EQ(w.core.state().find_task(w.task_of(runs))->price_class, PriceClass::on_demand);
  w.check_replay();

  // What it was suspended for is no part of how long it runs.
  w.must(AgentReport{w.node_of(runs),
                     {.task = w.task_of(runs),
                      .state = TaskState::running,
                      .started_at = w.now - hours(2),
                      .order = order(),
                      .order_at = w.now}});
  w.now = w.now + minutes(10);
  w.report(w.task_of(runs), TaskState::ended);
  w.must(w.job(1));
  const Expectation& learned = w.core.state().jobs.rbegin()->second.expected;
  ASSERT_EQ(learned.runs, 1u);
  EXPECT_EQ(learned.likely, minutes(10));
}

// It was to come back and waited for its card when the reservation ended: it says what it waits
// for, and comes back once that is given.
TEST(Reservations, SuspendedJobsInsideSurviveItsEnd) {
  Fleet w;
  w.join("n1", 1);
  w.must(w.reserve(1, Duration{}, hours(1)));
  const JobId sleeps = w.submit(inside(w.job(1)));
  w.report(w.task_of(sleeps), TaskState::running);
  w.must(SuspendJob{sleeps});
  w.must(AgentReport{w.node_of(sleeps),
                     {.task = w.task_of(sleeps),
                      .state = TaskState::suspended,
                      .started_at = w.now,
                      .order = w.core.state().find_job(sleeps)->suspension.order,
                      .order_at = w.now}});
  const JobId instead = w.submit(inside(w.job(1)));
  w.report(w.task_of(instead), TaskState::running);
  w.must(ResumeJob{sleeps});
  w.wait(hours(1) + seconds(1));
  ASSERT_TRUE(w.core.state().reservations.empty());
  w.report(w.task_of(instead), TaskState::ended);
  ASSERT_EQ(w.state(sleeps), JobState::suspended);
  ASSERT_TRUE(w.core.state().find_job(sleeps)->suspension.resume_wanted);
  const auto why = sched::explain(w.core.state().index, sleeps, w.now);
  EXPECT_NE(why.reasons.at(0).text.find("Its reservation 1 has ended"), std::string::npos)
      << why.reasons.at(0).text;
  EXPECT_NE(why.would_start_now.find("billow resume 1 --on-demand"), std::string::npos)
      << why.would_start_now;
  w.check_replay();
  w.must(ResumeJob{sleeps, true});
  EXPECT_EQ(w.state(sleeps), JobState::running);
  w.check_replay();
}

TEST(Reservations, AMemberReplacedAfterItsEndPaysTheSamePrice) {
  Fleet w;
  for (const char* name : {"n1", "n2", "n3"})
    w.join(name, 1);
  Reserve r = w.reserve(1, Duration{}, hours(1));
  r.nodes = 2;
  w.must(r);
  SubmitJob gang = inside(w.job(1));
  gang.spec.nodes = 2;
  gang.spec.elastic = gang.spec.rerun_if_lost = true;
  const JobId id = w.submit(gang);
  ASSERT_EQ(w.state(id), JobState::running);
  w.wait(hours(1) + seconds(1));
  const NodeId lost = w.core.state().find_task(w.core.state().find_job(id)->tasks.at(1))->node;
  w.must(NodeSilent{lost});
  w.must(RemoveNode{lost});
  for (int s = 0; s < 30; ++s)
    w.wait(seconds(1));
  const Job& job = *w.core.state().find_job(id);
  ASSERT_EQ(job.repairs, 1u);
  for (TaskId t : job.tasks)
    EXPECT_EQ(w.core.state().find_task(t)->price_class, PriceClass::on_demand);
  w.check_replay();
}

// A short reservation is no cheap way to long work: from the second of its end on what runs inside
// pays as on-demand work does.
TEST(Reservations, RunningJobsContinueAtTheOnDemandPriceAfterItsEnd) {
  Fleet w;
  w.join("n1", 4);
  w.must(w.reserve(2, Duration{}, hours(1)));
  const JobId runs = w.submit(inside(w.job(2)));
  w.report(w.task_of(runs), TaskState::running);
  const WallTime end = w.now + hours(1);
  w.now = end + minutes(7);  // the head was away, say: the end counts from when it was
  w.must(Tick{});
  const Task& task = *w.core.state().find_task(w.task_of(runs));
  EXPECT_EQ(task.price_class, PriceClass::on_demand);
  EXPECT_EQ(task.rate.nano_usd_per_s, 1'000'000);
  EXPECT_EQ(task.lease_from, end);
  EXPECT_EQ(task.lease_number, 1u);
  const Job& job = *w.core.state().find_job(runs);
  EXPECT_EQ(job.cost.value, 2 * 3600ll * 600'000);
  EXPECT_NE(job.reason.find("its reservation 1 has ended: since 2027-01-15 09:00 UTC"),
            std::string::npos)
      << job.reason;
  EXPECT_NE(job.reason.find("$7.20/h"), std::string::npos) << job.reason;
  w.check_replay();
  w.now = end + hours(2);
  w.report(w.task_of(runs), TaskState::ended);
  ASSERT_EQ(w.finished.size(), 1u);
  EXPECT_EQ(w.finished.front().job.cost.value, 2 * 3600ll * 600'000 + 2 * 7200ll * 1'000'000);
  const ledger::Totals all = w.core.state().money.books.totals({}, w.now);
  EXPECT_EQ(all.charge.value, w.finished.front().job.cost.value) << "the books say the same";
  w.check_replay();
}

TEST(Reservations, CancellingEndsItForItsJobsAtOnce) {
  Fleet w;
  w.join("n1", 2);
  w.must(w.reserve(1, Duration{}, hours(4)));
  SubmitJob again = inside(w.job(1));
  again.spec.retries = 1;
  const JobId runs = w.submit(again);
  w.report(w.task_of(runs), TaskState::running);
  w.wait(minutes(30));
  w.must(CancelReservation{ReservationId(1), ""});
  EXPECT_EQ(w.core.state().find_task(w.task_of(runs))->price_class, PriceClass::on_demand);
  EXPECT_EQ(w.core.state().find_task(w.task_of(runs))->lease_from, w.now);
  // From then on it is on-demand work in every way: also when it starts again.
  w.report(w.task_of(runs), TaskState::ended, {.kind = ExitKind::exited, .code = 1});
  w.wait(hours(1));
  ASSERT_EQ(w.state(runs), JobState::running);
  EXPECT_EQ(w.core.state().find_task(w.task_of(runs))->price_class, PriceClass::on_demand);
  w.check_replay();
}

// ---- what they cost, and the budgets they are paid from. A reserved GPU is 600,000 nano-dollars a
// second here.

BudgetKey budget(Fleet& w,
                 std::int64_t limit_usd,
                 BudgetScope scope = BudgetScope::project,
                 BudgetPeriod period = BudgetPeriod::total,
                 bool stops = true) {
  const std::uint64_t of = scope == BudgetScope::project
                               ? w.core.state().projects.begin()->first.value
                               : w.core.state().users.begin()->first.value;
  w.must(
      SetBudget{{scope, of, period, NanoUsd{limit_usd * 1'000'000'000}, stops, minutes(10)}, {}});
  return {scope, of, period};
}
ledger::BudgetUse use_of(const Fleet& w, const BudgetKey& key) {
  return budget_uses(w.core.state(), w.now).at(key);
}

TEST(Reservations, AreAcceptedOnlyIfTheyFitTheBudget) {
  for (const BudgetScope scope : {BudgetScope::project, BudgetScope::user}) {
    Fleet w;
    w.join("n1", 8);
    budget(w, 1, scope, BudgetPeriod::monthly, false);  // only warns
    budget(w, 10, scope);
    const Status refused = w.run(w.reserve(8, Duration{}, hours(1)));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::exhausted);
    EXPECT_NE(refused.error().message.find("($10.00) leaves $10.00; the reservation costs $17.28"),
              std::string::npos)
        << refused.error().message;
    EXPECT_NE(refused.error().hint.find("--for 34m would fit"), std::string::npos)
        << refused.error().hint;
    EXPECT_TRUE(w.core.state().reservations.empty());
    EXPECT_FALSE(w.run(w.reserve(8, hours(5), minutes(35))));
    w.must(w.reserve(8, hours(5), minutes(34)));
    w.check_replay();
  }
}

TEST(Reservations, AreChargedExactlyOnce) {
  Fleet w;
  w.join("n1", 4);
  const BudgetKey project = budget(w, 100),
                  user = budget(w, 100, BudgetScope::user, BudgetPeriod::monthly);
  constexpr std::int64_t gpu_s = 600'000, whole = 4 * 3600 * gpu_s;
  w.must(w.reserve(4, Duration{}, hours(1)));
  const JobId first = w.submit(inside(w.job(2))), second = w.submit(inside(w.job(1)));
  for (const JobId id : {first, second})
    w.report(w.task_of(id), TaskState::running);
  for (const BudgetKey& key : {project, user})
    EXPECT_EQ(use_of(w, key).reserved.value, whole) << "their first ten minutes are part of it";
  w.wait(minutes(5));
  w.wait(minutes(25));
  for (const BudgetKey& key : {project, user}) {
    EXPECT_EQ(use_of(w, key).spent.value, 3 * 1800 * gpu_s);
    EXPECT_EQ(use_of(w, key).reserved.value, whole - 3 * 1800 * gpu_s);
  }
  w.report(w.task_of(first), TaskState::ended);
  w.wait(minutes(30));
  ASSERT_TRUE(w.core.state().reservations.empty());
  for (const BudgetKey& key : {project, user}) {
    EXPECT_EQ(use_of(w, key).spent.value, whole);
    EXPECT_EQ(use_of(w, key).held_back.value, 0);
    EXPECT_EQ(use_of(w, key).reserved.value, 600 * 1'000'000)
        << "ten minutes of the one that goes on";
  }
  w.report(w.task_of(second), TaskState::ended);
  for (const BudgetKey& key : {project, user})
    EXPECT_EQ(use_of(w, key).spent.value, whole) << "and no more when its last job has ended";
  w.check_replay();
}

TEST(Reservations, HoldBackMoneyForThemselvesAndTheirJobs) {
  Fleet w;
  w.join("n1", 8);
  const BudgetKey key = budget(w, 10);
  w.must(w.reserve(4, hours(1), hours(1)));  // $8.64
  EXPECT_FALSE(w.run(w.reserve(4, hours(3), minutes(10)))) << "$1.44 more";
  w.must(w.reserve(4, hours(3), minutes(9)));
  w.must(CancelReservation{ReservationId(2), ""});
  const JobId outside = w.submit(w.job(3));  // ten minutes are $1.80
  ASSERT_EQ(w.state(outside), JobState::held);
  EXPECT_NE(w.core.state().find_job(outside)->reason.find("leaves $1.36 ($8.64 is reserved)"),
            std::string::npos)
      << w.core.state().find_job(outside)->reason;
  w.wait(hours(1));
  const JobId all = w.submit(inside(w.job(4)));
  ASSERT_EQ(w.state(all), JobState::running) << "ten minutes of it are $1.44, and paid for already";
  EXPECT_EQ(use_of(w, key).reserved.value, 8'640'000'000);
  w.must(MoneyTick{});
  EXPECT_EQ(w.state(outside), JobState::held);
  w.report(w.task_of(all), TaskState::ended);
  w.must(CancelReservation{ReservationId(1), ""});
  w.must(MoneyTick{});
  EXPECT_EQ(w.state(outside), JobState::running) << "nothing is kept for it any more";
  w.check_replay();
}

// What runs outside does not eat what is held back: else the reservation's own jobs would be
// suspended at the cap.
TEST(Reservations, JobsOutsideDoNotSpendTheirMoney) {
  Fleet w;
  w.join("n1", 8);
  const BudgetKey key = budget(w, 10);
  const JobId outside = w.submit(w.job(1));  // $3.60 an hour
  w.report(w.task_of(outside), TaskState::running);
  w.must(w.reserve(4, minutes(30), hours(1)));  // $8.64
  EXPECT_EQ(use_of(w, key).held_back.value, 8'640'000'000);
  w.wait(minutes(20));
  w.must(MoneyTick{});
  EXPECT_EQ(w.core.state().find_job(outside)->suspension.phase, SuspendPhase::none)
      << "$1.20 of $1.36";
  const auto uses = budget_uses(w.core.state(), w.now);
  EXPECT_EQ(task_paid_for(w.core.state(), *w.core.state().find_task(w.task_of(outside)), uses),
            seconds(160))
      << "$0.16 more";
  w.wait(minutes(3));
  w.must(MoneyTick{});
  const Job& job = *w.core.state().find_job(outside);
  EXPECT_EQ(job.suspension.phase, SuspendPhase::suspending);
  EXPECT_EQ(job.suspension.cause, SuspendCause::budget);
  EXPECT_NE(job.reason.find("set aside for reservations"), std::string::npos) << job.reason;
  w.must(AgentReport{w.node_of(outside),
                     {.task = w.task_of(outside),
                      .state = TaskState::suspended,
                      .started_at = w.now,
                      .order = job.suspension.order,
                      .order_at = w.now}});
  w.wait(minutes(7));
  const JobId in = w.submit(inside(w.job(4)));
  ASSERT_EQ(w.state(in), JobState::running);
  w.report(w.task_of(in), TaskState::running);
  w.must(MoneyTick{});
  EXPECT_EQ(w.core.state().find_job(in)->suspension.phase, SuspendPhase::none)
      << "its own is left alone";
  EXPECT_EQ(w.state(outside), JobState::suspended);
  w.must(CancelReservation{ReservationId(1), ""});
  w.must(MoneyTick{});
  EXPECT_EQ(w.state(outside), JobState::running) << "and comes back when the money is there again";
  w.check_replay();
}

// The reserved price was paid for to the end; the other one must be affordable like that of any job
// that starts.
TEST(Reservations, JobsBeyondTheBudgetAreHeldAtItsEnd) {
  Fleet w;
  w.join("n1", 4);
  const BudgetKey key = budget(w, 10);
  w.must(w.reserve(4, Duration{}, hours(1)));  // $8.64; $1.36 stay
  SubmitJob keeps = inside(w.job(1));
  keeps.spec.suspendable = Suspendable::yes;
  const JobId first = w.submit(keeps), second = w.submit(keeps), third = w.submit(inside(w.job(2)));
  for (const JobId id : {first, second, third})
    w.report(w.task_of(id), TaskState::running);
  w.wait(hours(1));  // ten minutes on demand are $0.60, $0.60 and $1.20
  EXPECT_EQ(w.core.state().find_job(first)->suspension.phase, SuspendPhase::none);
  EXPECT_EQ(w.core.state().find_job(second)->suspension.phase, SuspendPhase::none);
  const Job& too_much = *w.core.state().find_job(third);
  EXPECT_EQ(too_much.suspension.phase, SuspendPhase::suspending);
  EXPECT_EQ(too_much.suspension.cause, SuspendCause::budget);
  EXPECT_NE(too_much.reason.find("its reservation 1 has ended"), std::string::npos)
      << too_much.reason;
  EXPECT_EQ(use_of(w, key).reserved.value, 4 * 600ll * 1'000'000)
      << "of all three, until the third has left";
  w.must(AgentReport{w.node_of(third),
                     {.task = w.task_of(third),
                      .state = TaskState::suspended,
                      .started_at = w.now,
                      .order = too_much.suspension.order,
                      .order_at = w.now}});
  w.must(MoneyTick{});
  EXPECT_EQ(w.state(third), JobState::suspended);
  budget(w, 20);
  w.must(MoneyTick{});
  EXPECT_EQ(w.state(third), JobState::running) << "it waits for nobody's word, but for money";
  EXPECT_EQ(w.core.state().find_task(w.task_of(third))->price_class, PriceClass::on_demand);
  w.check_replay();
}

TEST(Reservations, CountPerDayAgainstADailyBudget) {
  Fleet w;  // it is 08:00
  w.join("n1", 2);
  const BudgetKey key = budget(w, 51, BudgetScope::project, BudgetPeriod::daily);
  const Status refused =
      w.run(w.reserve(1, Duration{}, hours(72)));  // $34.56 today, $51.84 tomorrow
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find(
                "leaves $51.00; the reservation costs $51.84 between 2027-01-16"),
            std::string::npos)
      << refused.error().message;
  EXPECT_NE(refused.error().hint.find("--for 39h would fit"), std::string::npos)
      << refused.error().hint;
  budget(w, 53, BudgetScope::project, BudgetPeriod::daily);
  w.must(w.reserve(1, Duration{}, hours(72)));
  EXPECT_EQ(use_of(w, key).reserved.value, 16ll * 3600 * 600'000);
  EXPECT_FALSE(w.run(w.reserve(1, hours(24), hours(1)))) << "$1.16 of tomorrow is left";
  w.must(w.reserve(1, hours(24), minutes(30)));
  w.must(CancelReservation{ReservationId(2), ""});
  for (int day = 0; day < 3; ++day)
    w.wait(hours(24));
  ASSERT_TRUE(w.core.state().reservations.empty());
  EXPECT_EQ(use_of(w, key).spent.value, 8ll * 3600 * 600'000) << "of the day it ended on";
  w.check_replay();
}

}  // namespace
}  // namespace billow::control
