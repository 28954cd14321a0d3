// Books that add up over random histories.
#include "money_world.h"

namespace billow::control::money_tests {
namespace {

// A life of three nodes and their jobs: crashes, clocks that are set, price changes, marks that are
// late or wrong, days that end.
struct RandomLife : World {
  explicit RandomLife(std::uint64_t seed) : rng(seed) {
    for (int n = 0; n < 3; ++n)
      must(AgentHello{offer("n" + std::to_string(n), 4), {}});
  }

  void step() {
    pass_time(seconds(rng.between(0, rng.chance(0.05) ? 90'000 : 900)));
    if (rng.chance(0.1))
      wall = wall + seconds(rng.between(-20'000, 20'000));  // somebody sets the clock
    if (rng.chance(0.08))
      crash();
    const auto& state = core.state();
    const double what = rng.unit();
    if (what < 0.35) {
      submit(static_cast<int>(rng.between(1, 3)), rng.chance(0.3));
    } else if (what < 0.6 && !open.empty()) {
      end_one();
    } else if (what < 0.75 && !open.empty()) {
      mark(*open.begin());
    } else if (what < 0.85) {
      must(SetPrice{{.of = rng.chance(0.5) ? "gpu:H100" : "node:n1",
                     .cost = Rate{rng.between(1, 5'000'000)},
                     .egress_gib = {rng.between(0, 120'000'000)}}});
    } else if (what < 0.9) {
      if (!state.jobs.empty())
        must(StopJob{state.jobs.begin()->first, "", false});
    } else if (what < 0.95 && !open.empty()) {
      if (const Task* task = state.find_task(*open.begin()))
        move_on(*task);
    } else {
      must(MoneyTick{});
    }
    look();
  }

  // Ends all tasks, and then the day: what came late is posted when the next one is closed.
  void finish() {
    for (const TaskId id : open)
      if (core.state().find_task(id))
        end(id);
    pass_time(hours(25));
    must(MoneyTick{});
  }

 private:
  void look() {
    open.clear();
    for (const auto& [id, task] : core.state().tasks)
      if (task.state != TaskState::ended)
        open.insert(id);
  }

  void end_one() {
    auto at = open.begin();
    std::advance(at, rng.between(0, static_cast<std::int64_t>(open.size()) - 1));
    if (core.state().find_task(*at))
      end(*at, rng.chance(0.2) ? 1 : 0,
          {.active = seconds(rng.between(0, 50'000)),
           .energy_mj = rng.between(0, 1'000'000),
           .measured = true,
           .egress_bytes = rng.between(0, 1ll << 40)});
  }

  void mark(TaskId id) {
    const Task* task = core.state().find_task(id);
    if (!task)
      return;
    MeterMarks marks;
    marks.node = task->node;
    marks.marks.push_back({id,
                           {.active = seconds(rng.between(0, 100'000)),
                            .energy_mj = rng.between(0, 1'000'000),
                            .measured = true,
                            .egress_bytes = rng.between(0, 1ll << 40)}});
    must(marks);
  }

  // Starts, suspends or resumes the task, or says that it has been.
  void move_on(const Task& task) {
    const Job* job = core.state().find_job(task.job);
    if (!job || job->stopping != StopCause::none)
      return;
    const SuspendPhase phase = job->suspension.phase;
    if (!task.started_at)
      must(AgentReport{task.node,
                       {.task = task.id, .state = TaskState::running, .started_at = wall}});
    else if (job->state == JobState::suspended)
      must(ResumeJob{job->id});
    else if (phase == SuspendPhase::none)
      (void)run(SuspendJob{job->id, "", SuspendCause::request, SuspendMode::warm});
    else
      must(AgentReport{
          task.node,
          {.task = task.id,
           .state = phase == SuspendPhase::suspending ? TaskState::suspended : TaskState::running,
           .started_at = wall,
           .order = job->suspension.order,
           .ram_mib = 4096}});
  }

  Rng rng;
  std::set<TaskId> open;  // since the last step
};

// The journal alone: every lease from its opening to its end, no second twice or lost.
class LeasesOfTheJournal {
 public:
  explicit LeasesOfTheJournal(const std::vector<Event>& history) {
    for (const Event& e : history)
      take(e);
  }
  NanoUsd charged, egress;

 private:
  void take(const Event& e) {
    if (const auto* p = get_if<JobPlaced>(&e.body))
      for (const Task& t : p->tasks)
        held_[t.id] = t;
    if (const auto* t = get_if<TaskStarted>(&e.body); t && t->lease_from)
      held_.at(t->task).lease_from = t->lease_from;
    if (const auto* t = get_if<TaskEnded>(&e.body)) {
      EXPECT_GE(t->usage.meter.egress, traffic_[t->task]);
      close(held_.at(t->task), t->lease_to, t->cost, t->usage.meter.egress);
    }
    if (const auto* m = get_if<MeterMarked>(&e.body))
      for (const TaskMark& mark : m->marks) {
        EXPECT_GE(mark.meter.egress, traffic_[mark.task]);
        traffic_[mark.task] = mark.meter.egress;
      }
    if (const auto* t = get_if<TaskSuspended>(&e.body)) {
      close(held_.at(t->task), t->lease_to, t->cost);
      held_.at(t->task).price_class = PriceClass::suspended;
      held_.at(t->task).rate = t->rate;
      held_.at(t->task).ram_mib = t->ram_mib;
    }
    if (const auto* t = get_if<JobResuming>(&e.body)) {
      close(held_.at(t->task), t->lease_to, t->cost);
      held_.at(t->task).price_class = t->price_class;
      held_.at(t->task).rate = t->rate;
      held_.at(t->task).gpus = t->gpus;
    }
  }

  void close(Task& task, WallTime to, NanoUsd cost, NanoUsd sent = {}) {
    EXPECT_GE(to.ns, task.lease_from.ns);
    EXPECT_EQ(cost, amount(task.rate, to - task.lease_from, ledger::charged_milli(task)) + sent);
    egress += sent;
    charged += cost;
    task.lease_from = to;
    ++task.lease_number;
  }

  std::map<TaskId, Task> held_;
  std::map<TaskId, NanoUsd> traffic_;  // as the head reckoned it, which never shrinks
};

void check_charges(const World& w) {
  const LeasesOfTheJournal journal(w.history);
  NanoUsd charged, egress;
  for (const ClosedLease& lease : w.leases)
    if (!lease.open) {
      charged += lease.charge;
      egress += lease.egress;
    }
  EXPECT_EQ(journal.charged.value, charged.value) << "the books charge what the journal says";
  EXPECT_EQ(journal.egress.value, egress.value) << "traffic included";
}

// What was posted is what the nodes cost up to the last midnight.
void check_costs(const World& w) {
  const auto& books = w.core.state().money.books;
  const WallTime midnight{w.core.state().money.days_closed * day_ns};
  NanoUsd posted, by_events, by_day, fleet;
  for (const ledger::Entry& e : w.entries)
    if (e.kind != ledger::EntryKind::charge && e.kind != ledger::EntryKind::egress)
      posted += e.amount;
  for (const DayClosed& d : w.all<DayClosed>()) {
    EXPECT_EQ((d.active + d.idle + d.unallocated).value, d.fleet.value);
    by_events += d.fleet;
  }
  for (const NodeDay& day : w.node_days)
    by_day += day.cost;
  for (const auto& [id, node] : w.core.state().nodes)
    fleet += books.fleet_between(id, {}, midnight);
  EXPECT_EQ(posted.value, fleet.value);
  EXPECT_EQ(by_events.value, fleet.value);
  EXPECT_EQ(by_day.value, fleet.value) << "so do the days in the store";
  const auto totals = books.totals(midnight, w.billed);
  EXPECT_EQ((totals.active + totals.idle + totals.unallocated).value, totals.fleet.value);
  EXPECT_GE(totals.unallocated.value, 0);
}

// Whatever happens, what is posted adds up to what the nodes cost, each lease is charged for
// exactly the seconds it was held, and replay gives the identical ledger.
TEST(Money, ReconcilesToZeroForRandomHistories) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(seed);
    RandomLife w(seed);
    for (int step = 0; step < 150; ++step)
      w.step();
    w.finish();
    check_charges(w);
    check_costs(w);
    w.check_replay();
  }
}

}  // namespace
}  // namespace billow::control::money_tests
