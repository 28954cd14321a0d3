// Money that is not for GPUs: storage and egress.
#include "money_world.h"

namespace billow::control::money_tests {
namespace {

TEST(Money, StorageIsChargedIfThePoolHasAPrice) {
  World w;
  NodeOffer rented = offer("n1", 2, true);
  rented.labels["disk-gib"] = "1000";
  w.must(AgentHello{rented, {}});
  const std::int64_t bare = w.core.state().money.books.node_rate(NodeId(1)).nano_usd_per_s;
  w.must(SetPrice{{.of = "pool:cloud", .storage_gib_month = {100'000'000}}});  // $0.10
  const std::int64_t disk = 100'000'000'000 / 2'629'800;  // of 1,000 GiB, a second
  EXPECT_NEAR(
      static_cast<double>(w.core.state().money.books.node_rate(NodeId(1)).nano_usd_per_s - bare),
      static_cast<double>(disk), 1);
  const JobId id = w.submit(1);
  const Rate rate = w.core.state().find_task(w.job(id)->tasks.front())->rate;
  EXPECT_NEAR(static_cast<double>(rate.nano_usd_per_s), 1'000'000 + static_cast<double>(disk) / 2,
              1)
      << "half of the GPUs, half of the disk";
  w.pass_time(seconds(100));
  w.end(w.job(id)->tasks.front());
  EXPECT_EQ(w.finished[0].job.cost.value, 100 * rate.nano_usd_per_s);
  const auto totals = w.core.state().money.books.totals({start_ns}, w.billed);
  EXPECT_EQ((totals.active + totals.idle + totals.unallocated).value, totals.fleet.value);
  w.check_replay();
}

TEST(Money, EgressIsChargedIfThePoolHasAPrice) {
  World w;
  w.must(AgentHello{offer("n1", 2, true), {}});
  w.must(SetPrice{{.of = "pool:cloud",
                   .egress_gib = {90'000'001}}});  // $0.09 and a bit, so that rounding shows
  const JobId id = w.submit(1);
  const TaskId task = w.job(id)->tasks.front();
  const Rate rate = w.core.state().find_task(task)->rate;
  const WallTime began = w.billed;
  const auto mark = [&](std::int64_t bytes) {
    w.must(MeterMarks{NodeId(1),
                      {{task, {.active = seconds(100), .measured = true, .egress_bytes = bytes}}}});
  };
  const std::int64_t gib = 1 << 30;
  w.pass_time(seconds(100));
  for (int i = 1; i <= 7; ++i)
    mark(3 * gib / 7 * i);
  mark(3 * gib);
  mark(3 * gib);  // said again
  mark(gib);      // an agent that came back and knows less
  EXPECT_EQ(egress_so_far(w.core.state(), task).value, 3 * 90'000'001)
      << "however often it is told";
  w.crash();
  EXPECT_EQ(egress_so_far(w.core.state(), task).value, 3 * 90'000'001);
  w.must(SetPrice{{.of = "pool:cloud", .egress_gib = {50'000'000}}});  // from here on
  w.pass_time(seconds(100));
  w.end(task, 0, {.active = seconds(200), .measured = true, .egress_bytes = 5 * gib});
  const std::int64_t traffic = 3 * 90'000'001 + 2 * 50'000'000, time = 200 * rate.nano_usd_per_s;
  EXPECT_EQ(w.finished[0].job.cost.value, time + traffic);
  ASSERT_EQ(w.leases.size(), 1u);
  EXPECT_EQ(w.leases[0].charge.value, time + traffic);
  EXPECT_EQ(w.leases[0].egress.value, traffic);
  EXPECT_EQ(w.leases[0].egress_bytes, 5 * gib);
  const auto totals = w.core.state().money.books.totals(began, w.billed);
  EXPECT_EQ((totals.active + totals.idle + totals.unallocated).value, totals.fleet.value);
  EXPECT_EQ(totals.charge.value, time + traffic);
  EXPECT_GE(totals.active.value, traffic) << "the traffic is a cost of the fleet, and this lease's";
  w.check_replay();
}

TEST(Money, EgressCountsAgainstABudgetOnlyIfItHasAPrice) {
  World w;
  w.must(AgentHello{offer("n1", 1), {}});
  const JobId free = w.submit(1);
  w.pass_time(seconds(10));
  w.end(w.job(free)->tasks.front(), 0, {.egress_bytes = 12345});
  EXPECT_EQ(w.leases[0].egress_bytes, 12345);
  EXPECT_EQ(w.leases[0].egress.value, 0);
  w.must(SetPrice{{.of = "node:n1", .egress_gib = {1'000'000'000}}});
  const BudgetKey key = project_budget(w, {100'000'000'000});
  const JobId id = w.submit(1);
  const TaskId task = w.job(id)->tasks.front();
  const NanoUsd before = budget_uses(w.core.state(), w.billed).at(key).spent;
  w.must(MeterMarks{NodeId(1), {{task, {.egress_bytes = 2ll << 30}}}});
  w.pass_time(seconds(1));
  const std::int64_t second = w.core.state().find_task(task)->rate.nano_usd_per_s;
  EXPECT_EQ((budget_uses(w.core.state(), w.billed).at(key).spent - before).value,
            2'000'000'000 + second);
  w.end(task);
  EXPECT_EQ((budget_uses(w.core.state(), w.billed).at(key).spent - before).value,
            2'000'000'000 + second)
      << "the same once it has ended, though its end said nothing of traffic";
  w.check_replay();
}

}  // namespace
}  // namespace billow::control::money_tests
