// What gpu/ knows survives the wire: zero stays zero and unknown stays unknown.
#include "fixture.h"

#include "core/wire/codec.h"
#include "gpu/host.h"

namespace billow {
namespace {

template <class T>
void expect_round_trip(const T& value) {
  const std::string text = wire::to_json_text(value);
  const auto back = wire::from_json_text<T>(text);
  ASSERT_TRUE(back) << back.error().message << " in " << text;
  EXPECT_EQ(*back, value) << text;
}

TEST(GpuWire, InventorySampleEventAndHost) {
  const TempDir state;
  const Child child(rest);
  ASSERT_TRUE(write_sim_hold(state.path(), "t", {{0, 1000, 0, child.pid(), "", -1}}));
  const auto backend = open_sim("2xH100+mig=3g.40gb,2xL4", state.path());
  expect_round_trip(*backend->inventory());
  expect_round_trip(*backend->sample(0));
  const auto sample = backend->sample(2);
  EXPECT_EQ(sample->util_pct, 0);
  EXPECT_FALSE(sample->sm_active_pct);
  expect_round_trip(*sample);
  expect_round_trip(GpuEvent{3, GpuEventKind::lost, 79, FaultClass::hardware, "XID 79", {5}});
  expect_round_trip(*read_host());
}

}  // namespace
}  // namespace billow
