// Readings become series: averages over GPUs, sums over tasks, and unknown stays unknown. Bad GPUs
// are drained once.
#include "head/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "base/limits.h"
#include "store/sim_journal.h"
#include "tests/unit/store/store_test_support.h"

namespace billow::head {
namespace {

class SetClock final : public Clock {
 public:
  WallTime wall() const override { return now; }
  SteadyTime steady() const override { return system_clock().steady(); }
  WallTime now;
};

struct SamplingTest : testing::Test {
  store_test::TempDir dir;
  net::Loop loop;
  SimDisk disk;
  SimJournal journal{disk, 1};
  std::unique_ptr<History> history = *History::open(dir / "history");
  net::Workers workers{loop, {}};  // after what they write into, so they end first
  std::unique_ptr<Engine> engine;
  std::optional<wire::agent_v1::Heartbeat> beat;
  std::unique_ptr<Sampling> sampling;

  SamplingTest() {
    JournalHooks hooks;
    hooks.on_durable = [this](Seq durable) {
      engine->on_durable(durable);
    };
    journal.set_hooks(std::move(hooks));
    engine = *Engine::restore({.journal = &journal,
                               .clock = &system_clock(),
                               .deliver = [](const control::Effect&) {},
                               .observe = {}},
                              {});
    run(StartHead{.version = "1", .epoch = 1, .admin = "ana"});
    NodeOffer offer;
    offer.name = "n1";
    offer.boot_id = "boot";
    for (int i = 0; i < 2; ++i)
      offer.gpus.push_back(
          {.index = i, .uuid = "u" + std::to_string(i), .type = "H100", .mem_mib = 81559});
    offer.cpu_milli = 16000;
    offer.mem_mib = 65536;
    run(AgentHello{offer, {}});
    sampling = std::make_unique<Sampling>(
        Sampling::Options{&workers, &system_clock(), history.get(), engine.get(), [this](NodeId) {
                            return beat ? &*beat : nullptr;
                          }});
  }
  void run(const Command& command) {
    engine->execute(command, {"test", ""}, {});
    while (journal.step()) {}
  }
  JobId submit(int gpus) {
    SubmitJob submit;
    submit.spec.argv = {"true"};
    submit.spec.resources.gpus = gpus;
    submit.spec.resources.share = {1000, 0};
    submit.user = engine->state().users.begin()->first;
    const JobId id(engine->state().next_job);
    run(submit);
    return id;
  }
};

TEST_F(SamplingTest, AJobsGpusAreAveragedAndItsMemoryAddedUp) {
  const JobId id = submit(2);
  beat.emplace();
  beat->gpus.push_back({.gpu = 0, .util_pct = 80, .mem_used_mib = 1000});
  beat->gpus.push_back({.gpu = 1, .util_pct = 20, .mem_used_mib = 3000});
  sampling->tick();
  const JobSeries* series = sampling->live_series(id);
  ASSERT_NE(series, nullptr);
  const JobSample point = series->point(0);
  EXPECT_DOUBLE_EQ(point[col_gpu_util], 500) << "in thousandths: 50 %";
  EXPECT_DOUBLE_EQ(point[col_gpu_mem], 4000);
  EXPECT_TRUE(std::isnan(point[col_sm_active])) << "no card told";
}

TEST_F(SamplingTest, WithoutAHeartbeatThereIsNoSeries) {
  const JobId id = submit(1);
  sampling->tick();
  EXPECT_EQ(sampling->live_series(id), nullptr);
}

TEST_F(SamplingTest, WhatANewEndpointCountedBeforeItsFirstSampleIsNotLost) {
  DeployEndpoint deploy{.name = "hello", .user = engine->state().users.begin()->first};
  deploy.spec.argv = {"serve"};
  run(deploy);
  ASSERT_TRUE(engine->state().endpoints.contains("hello"));
  gateway::EndpointFigures figures;
  figures.requests = 3;
  figures.cold_starts = 1;
  Sampling one({&workers, &system_clock(), history.get(), engine.get(),
                [](NodeId) { return nullptr; },
                [&](const std::string&) {
                  return &figures;
                }});
  one.tick();
  const WallTime now = system_clock().wall();
  double starts = 0, requests = 0;
  loop.run_until(
      [&] {
        const auto answer = history->read("endpoint hello", now + minutes(-5), now, 100);
        for (std::size_t i = 0; answer && i < answer->points.size(); ++i)
          if (!std::isnan(answer->points[i][endpoint_cold_starts])) {
            starts = answer->points[i][endpoint_cold_starts] / 1000;
            requests = answer->points[i][endpoint_requests] / 1000;
          }
        return starts > 0;
      },
      seconds(5));
  EXPECT_DOUBLE_EQ(starts, 1) << "in this step";
  EXPECT_NEAR(requests * limits::history_step.seconds(), 3, 0.01);
}

// A gateway may report an endpoint only after its replica has come up.
TEST_F(SamplingTest, TheSumsOfANewEndpointAreWhatItsGatewayCounted) {
  DeployEndpoint deploy{.name = "hello", .user = engine->state().users.begin()->first};
  deploy.spec.argv = {"serve"};
  run(deploy);
  SetClock clock;
  clock.now = engine->state().endpoints.at("hello").made_at;
  gateway::EndpointFigures figures;
  const gateway::EndpointFigures* reported = nullptr;
  Sampling late({&workers, &clock, history.get(), engine.get(), [](NodeId) { return nullptr; },
                 [&](const std::string&) {
                   return reported;
                 }});
  for (int step = 0; step < 8; ++step) {
    clock.now = clock.now + limits::history_step;
    if (step == 4) {
      figures.requests = 30;
      figures.cold_starts = 1;
      reported = &figures;
    }
    if (step == 5) {
      figures.requests = 50;
      clock.now = clock.now + limits::history_step;  // a sample that comes late
    }
    late.tick();
  }
  double requests = 0, starts = 0, known_s = 0;
  loop.run_until(
      [&] {
        requests = starts = known_s = 0;
        // Few points: each is the mean of several samples.
        const auto answer =
            history->read("endpoint hello", clock.now + minutes(-10), clock.now, 20);
        for (std::size_t i = 0; answer && i < answer->points.size(); ++i) {
          if (answer->known_s[i] == 0)
            continue;
          known_s += answer->known_s[i];
          if (std::isnan(answer->points[i][endpoint_requests]))
            continue;
          requests += answer->points[i][endpoint_requests] / 1000 * answer->known_s[i];
          starts += answer->points[i][endpoint_cold_starts] / 1000 * answer->known_s[i] /
                    limits::history_step.seconds();
        }
        return known_s >= 80;
      },
      seconds(5));
  EXPECT_NEAR(requests, 50, 0.1);
  EXPECT_NEAR(starts, 1, 0.01);
}

TEST_F(SamplingTest, ABadGpuIsDrainedOnce) {
  const NodeId node = engine->state().nodes.begin()->first;
  wire::agent_v1::Heartbeat bad;
  bad.gpus.push_back({.gpu = 1});
  bad.gpus[0].score = limits::gpu_drain_score - 1;
  bad.gpus[0].fault = "XID 79: the GPU fell off the bus";
  bad.gpus[0].fault_at = WallTime{1'000};
  sampling->look_at_health(node, bad);
  const Seq drained = engine->state().seq;
  const GpuMark* mark = engine->state().nodes.at(node).mark(1);
  ASSERT_NE(mark, nullptr);
  EXPECT_NE(mark->drained.find("XID 79"), std::string::npos);
  sampling->look_at_health(node, bad);
  EXPECT_EQ(engine->state().seq, drained) << "said again, nothing new";
}

}  // namespace
}  // namespace billow::head
