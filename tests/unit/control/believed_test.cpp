// What of an agent's readings counts: its own cards and tasks, with values that can be.
#include "core/control/believed.h"

#include "base/limits.h"

#include "world.h"

namespace billow::control {
namespace {

using wire::agent_v1::Heartbeat;

TEST(Believed, OnlyCardsThatWereOfferedAndTasksThatRunThere) {
  World w;
  w.must(AgentHello{offer("honest", 2), {}});
  NodeOffer other = offer("liar", 1);
  other.gpus[0].uuid = "other";
  w.must(AgentHello{other, {}});
  w.must(w.job(2));
  const NodeId honest = w.core.state().node_by_name("honest")->id,
               liar = w.core.state().node_by_name("liar")->id;
  const TaskId task = w.task_of(JobId(1));
  ASSERT_EQ(w.core.state().find_task(task)->node, honest);

  Heartbeat beat;
  for (const int gpu : {0, 0, 1, 7, -1, INT32_MIN})
    beat.gpus.push_back({.gpu = gpu, .util_pct = 50});
  beat.tasks = {
      {.task = task, .cpu_milli = 5}, {.task = task, .cpu_milli = 6}, {.task = TaskId(999)}};
  Heartbeat copy = beat;
  EXPECT_EQ(keep_believed(w.core.state(), honest, copy), 6u);
  ASSERT_EQ(copy.gpus.size(), 2u);
  EXPECT_EQ(copy.gpus[0].gpu, 0);
  EXPECT_EQ(copy.gpus[1].gpu, 1);
  ASSERT_EQ(copy.tasks.size(), 1u);
  EXPECT_EQ(copy.tasks[0].cpu_milli, 5);
  copy = beat;
  EXPECT_EQ(keep_believed(w.core.state(), liar, copy), 8u)
      << "somebody else's task, and cards it never offered";
  ASSERT_EQ(copy.gpus.size(), 1u);
  EXPECT_TRUE(copy.tasks.empty());
  copy = beat;
  EXPECT_EQ(keep_believed(w.core.state(), NodeId(77), copy), 9u);
  EXPECT_TRUE(copy.gpus.empty() && copy.tasks.empty());
}

TEST(Believed, ImpossibleValuesAreClamped) {
  World w;
  w.must(AgentHello{offer("n1", 1), {}});
  const NodeId node = w.core.state().node_by_name("n1")->id;
  Heartbeat beat;
  wire::agent_v1::GpuReading reading;
  reading.util_pct = INT32_MAX;
  reading.mem_used_mib = INT64_MAX;
  reading.power_mw = INT64_MAX;
  reading.temperature_c = INT32_MIN;
  reading.score = -5;
  reading.fault = std::string(499, 'x') + "ü";
  beat.gpus = {reading};
  EXPECT_EQ(keep_believed(w.core.state(), node, beat), 0u);
  const auto& r = beat.gpus.at(0);
  EXPECT_EQ(r.util_pct, 100);
  EXPECT_EQ(r.mem_used_mib, 81559);
  EXPECT_LT(r.power_mw, 1'000'000'000);
  EXPECT_GE(r.temperature_c, -300);
  EXPECT_EQ(r.score, 0);
  EXPECT_EQ(r.fault, std::string(499, 'x'));
}

TEST(Believed, CardsAreNumberedAsTheyAreOffered) {
  World w;
  for (const std::vector<int>& numbers : {std::vector{1}, {0, 0}, {-1}, {0, 2}}) {
    NodeOffer lies = offer("n1", static_cast<int>(numbers.size()));
    for (std::size_t i = 0; i < numbers.size(); ++i)
      lies.gpus[i].index = numbers[i];
    EXPECT_FALSE(w.run(AgentHello{lies, {}}));
  }
  w.must(AgentHello{offer("n1", 2), {}});
}

TEST(Believed, TextsOfAReportAreShortPrintableLines) {
  TaskStatus status;
  status.waits_for = std::string(100'000, 'x') + "\xff";
  status.exit.message = "a\nb\x1b[31m\xff";
  status.order_error = "f\xc3\xbcr";
  status.checkpoint.path = "/data/c\n";
  keep_believed(status);
  EXPECT_EQ(status.waits_for, std::string(limits::words_bytes_max, 'x'));
  EXPECT_EQ(status.exit.message, "a b [31m\xef\xbf\xbd");
  EXPECT_EQ(status.order_error, "f\xc3\xbcr");
  EXPECT_TRUE(status.checkpoint.path.empty());
}

TEST(Believed, ReportedTrafficIsLimitedToTheLineRate) {
  World w;
  w.must(AgentHello{offer("liar", 1), {}});
  w.must(SetPrice{{.of = "node:liar", .egress_gib = {5'000'000'000}}});
  w.must(w.job(1));
  const TaskId task = w.task_of(JobId(1));
  w.report(task, TaskState::running);
  const auto said = [&](std::int64_t bytes) {
    w.must(MeterMarks{w.core.state().find_task(task)->node, {{task, {.egress_bytes = bytes}}}});
    return w.core.state().money.meters.at(task).meter;
  };
  EXPECT_EQ(said(1ll << 30).egress.value, 5'000'000'000) << "what can be is billed to the byte";
  w.now = w.now + seconds(9);
  const auto meter = said(INT64_MAX);
  EXPECT_LE(meter.egress_bytes, 10 * 50'000'000'000ll);
  EXPECT_GT(meter.egress.value, 0);
  EXPECT_LE(meter.egress.value, 10 * 50'000'000'000ll / (1 << 30) * 5'000'000'000 + 5'000'000'000);
  w.check_replay();
}

}  // namespace
}  // namespace billow::control
