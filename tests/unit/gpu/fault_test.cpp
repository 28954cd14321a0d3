// Injected errors come out where real ones would.
#include "fixture.h"

namespace billow {
namespace {

TEST(SimFaults, XidIsReportedOnceWithItsMeaning) {
  const TempDir state;
  const auto backend = open_sim("8xH100", state.path());
  EXPECT_TRUE(backend->poll_events(milliseconds(0))->empty());
  ASSERT_TRUE(inject_sim_fault(state.path(), "xid 3 48"));
  std::vector<GpuEvent> events;
  ASSERT_TRUE(eventually([&] {
    events = *backend->poll_events(milliseconds(50));
    return !events.empty();
  }));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].index, 3u);
  EXPECT_EQ(events[0].kind, GpuEventKind::xid);
  EXPECT_EQ(events[0].code, 48);
  EXPECT_EQ(events[0].fault, FaultClass::hardware);
  EXPECT_NE(events[0].text.find("memory error"), std::string::npos);
  EXPECT_TRUE(backend->poll_events(milliseconds(30))->empty());
  // The same error again is news again; one of the program's own doing is told apart.
  ASSERT_TRUE(inject_sim_fault(state.path(), "xid 3 48"));
  ASSERT_TRUE(inject_sim_fault(state.path(), "xid 1 31"));
  ASSERT_TRUE(eventually([&] {
    const auto more = backend->poll_events(milliseconds(50));
    events.insert(events.end(), more->begin(), more->end());
    return events.size() == 3;
  }));
  EXPECT_EQ(events[2].fault, FaultClass::application);
  EXPECT_EQ(backend->sample(3)->health, GpuHealth::ok);
}

TEST(SimFaults, LostGpuSaysSoAndKeepsItsPlace) {
  const TempDir state;
  const auto backend = open_sim("4xL4", state.path());
  ASSERT_TRUE(inject_sim_fault(state.path(), "lost 2"));
  ASSERT_TRUE(eventually([&] { return backend->sample(2)->health == GpuHealth::lost; }));
  const auto sample = backend->sample(2);
  EXPECT_FALSE(sample->util_pct);
  EXPECT_TRUE(sample->processes.empty());
  const auto inventory = backend->inventory();
  ASSERT_EQ(inventory->gpus.size(), 4u);
  EXPECT_EQ(inventory->gpus[2].health, GpuHealth::lost);
  EXPECT_FALSE(inventory->gpus[2].health_reason.empty());
  EXPECT_EQ(inventory->gpus[3].health, GpuHealth::ok);
  const auto events = backend->poll_events(milliseconds(100));
  ASSERT_EQ(events->size(), 1u);
  EXPECT_EQ(events->front().kind, GpuEventKind::lost);
  EXPECT_EQ(events->front().code, 79);
  ASSERT_TRUE(clear_sim_faults(state.path()));
  EXPECT_TRUE(eventually([&] { return backend->sample(2)->health == GpuHealth::ok; }));
}

TEST(SimFaults, LostBeforeTheStartIsLostWithoutNews) {
  const TempDir state;
  ASSERT_TRUE(inject_sim_fault(state.path(), "xid 1 79"));
  const auto backend = open_sim("2xL4", state.path());
  EXPECT_EQ(backend->sample(1)->health, GpuHealth::lost);
  const auto inventory = backend->inventory();
  EXPECT_EQ(inventory->gpus[1].health, GpuHealth::lost);
  EXPECT_EQ(inventory->gpus[0].health, GpuHealth::ok);
  EXPECT_TRUE(backend->poll_events(milliseconds(20))->empty());
}

TEST(SimFaults, HungIsFullUtilisationAtIdlePower) {
  const TempDir state;
  const Child child(rest);
  ASSERT_TRUE(write_sim_hold(state.path(), "t", {{1, 1000, 0, child.pid(), "", -1}}));
  ASSERT_TRUE(inject_sim_fault(state.path(), "hung 1"));
  const auto backend = open_sim("2xH100", state.path());
  EXPECT_TRUE(eventually([&] { return backend->sample(1)->sm_active_pct.value_or(100) < 5; }));
  const auto sample = backend->sample(1);
  EXPECT_EQ(sample->util_pct, 100);
  EXPECT_GT(*sample->power_mw, *sample->power_idle_mw);  // the clocks are up
  EXPECT_LT(*sample->power_mw, *sample->power_idle_mw + 700'000 / 10);
}

TEST(SimFaults, EccErrorsDegradeTheCard) {
  const TempDir state;
  const auto backend = open_sim("2xA100-80", state.path());
  ASSERT_TRUE(inject_sim_fault(state.path(), "ecc 1 4"));
  ASSERT_TRUE(eventually([&] { return backend->sample(1)->ecc_uncorrected == 4; }));
  EXPECT_EQ(backend->inventory()->gpus[1].health, GpuHealth::degraded);
  EXPECT_EQ(backend->poll_events(milliseconds(100))->front().kind, GpuEventKind::ecc_uncorrected);
}

TEST(SimFaults, LinesThatMeanNothingAreRefused) {
  const TempDir state;
  for (const char* line :
       {"", "xid", "xid 1", "xid a 79", "lost", "lost 1 2", "melt 3", "ecc 1 many"}) {
    EXPECT_EQ(inject_sim_fault(state.path(), line).error().code, Code::invalid) << line;
  }
}

}  // namespace
}  // namespace billow
