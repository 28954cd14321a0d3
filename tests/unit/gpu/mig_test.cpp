// MIG: shapes, placement and permission, on the simulated cards and in the pure placement rules.
#include "fixture.h"

#include <algorithm>
#include <set>

#include "gpu/mig.h"

namespace billow {
namespace {

MigCreate at(const char* profile, std::uint32_t start, std::uint32_t size) {
  return {0, profile, MigPlacement{start, size}};
}

TEST(Mig, ProfilesOfTheCards) {
  const auto names = [](const char* spec) {
    std::string text;
    const auto profiles = open_sim(spec)->mig_profiles(0);
    for (const MigProfile& p : *profiles)
      text += p.name + " ";
    return text;
  };
  EXPECT_EQ(names("1xA100-40+mig"), "1g.5gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb 1g.5gb+me 1g.10gb ");
  EXPECT_EQ(names("1xH100+mig"), "1g.10gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb 1g.10gb+me 1g.20gb ");
  EXPECT_EQ(names("1xH200+mig"), "1g.18gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb 1g.18gb+me 1g.35gb ");
}

TEST(Mig, ABadlyPlacedOneBlocksAThree) {
  const auto backend = open_sim("1xH100+mig", "", true);
  ASSERT_TRUE(backend->create_mig(at("1g.10gb", 0, 1)));
  ASSERT_TRUE(backend->create_mig(at("3g.40gb", 4, 4)));
  // Slices 1 to 3 are free, but the only other place of a 3g begins at 0.
  const auto blocked = backend->create_mig({0, "3g.40gb", std::nullopt});
  ASSERT_FALSE(blocked);
  EXPECT_EQ(blocked.error().code, Code::exhausted);
  EXPECT_NE(blocked.error().message.find("1g.10gb at 0"), std::string::npos);
  // The card itself refuses as well.
  EXPECT_EQ(backend->create_mig(at("3g.40gb", 0, 4)).error().code, Code::exhausted);
  EXPECT_TRUE(backend->create_mig(at("2g.20gb", 2, 2)));
}

TEST(Mig, TheDefaultPlacementKeepsSpaceForLargeShapes) {
  const auto backend = open_sim("1xH100+mig", "", true);
  const auto first = backend->create_mig({0, "1g.10gb", std::nullopt});
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_GE(first->placement.start, 4u);  // so that a 4g still fits at 0
  EXPECT_TRUE(first->uuid.starts_with("MIG-"));
  EXPECT_TRUE(backend->create_mig({0, "4g.40gb", std::nullopt}));
  EXPECT_TRUE(backend->create_mig({0, "1g.10gb", std::nullopt}));
}

TEST(Mig, SevenSmallOnesFillTheCard) {
  const auto backend = open_sim("1xA100-80+mig", "", true);
  std::set<std::string> uuids;
  for (int i = 0; i < 7; ++i) {
    const auto made = backend->create_mig({0, "1g.10gb", std::nullopt});
    ASSERT_TRUE(made) << made.error().message;
    uuids.insert(made->uuid);
  }
  EXPECT_EQ(uuids.size(), 7u);
  EXPECT_EQ(backend->create_mig({0, "1g.10gb", std::nullopt}).error().code, Code::exhausted);
  EXPECT_EQ(backend->inventory()->gpus[0].mig.instances.size(), 7u);
}

TEST(Mig, DestroyFreesTheSpace) {
  const auto backend = open_sim("1xH100+mig", "", true);
  const auto whole = backend->create_mig({0, "7g.80gb", std::nullopt});
  ASSERT_TRUE(whole);
  EXPECT_FALSE(backend->create_mig({0, "1g.10gb", std::nullopt}));
  EXPECT_TRUE(backend->destroy_mig(0, whole->gpu_instance));
  EXPECT_EQ(backend->destroy_mig(0, whole->gpu_instance).error().code, Code::not_found);
  EXPECT_TRUE(backend->create_mig({0, "1g.10gb", std::nullopt}));
}

TEST(Mig, AnInstanceInUseIsNotDestroyed) {
  const TempDir state;
  const auto backend = open_sim("1xH100+mig", state.path(), true);
  const auto made = backend->create_mig({0, "1g.10gb", std::nullopt});
  ASSERT_TRUE(made);
  const Child child(rest);
  ASSERT_TRUE(
      write_sim_hold(state.path(), "t", {{0, 142, 0, child.pid(), "", made->gpu_instance}}));
  ASSERT_TRUE(eventually([&] { return !backend->processes(0)->empty(); }));
  EXPECT_EQ(backend->destroy_mig(0, made->gpu_instance).error().code, Code::conflict);
  ASSERT_TRUE(remove_sim_hold(state.path(), "t"));
  EXPECT_TRUE(eventually([&] { return backend->destroy_mig(0, made->gpu_instance).has_value(); }));
}

TEST(Mig, InstancesOutliveTheProcessThatMadeThem) {
  const TempDir state;
  std::string uuid;
  {
    const auto backend = open_sim("1xH100+mig=3g.40gb", state.path(), true);
    uuid = backend->create_mig({0, "2g.20gb", std::nullopt})->uuid;
  }
  const auto instances = open_sim("1xH100+mig=3g.40gb", state.path())->mig_instances(0);
  ASSERT_EQ(instances->size(), 2u);
  EXPECT_TRUE(
      std::ranges::any_of(*instances, [&](const MigInstance& i) { return i.uuid == uuid; }));
}

TEST(Mig, ChangesNeedPermissionAndTheMode) {
  EXPECT_EQ(open_sim("1xH100+mig")->create_mig({0, "1g.10gb", std::nullopt}).error().code,
            Code::forbidden);
  EXPECT_EQ(open_sim("1xH100", "", true)->create_mig({0, "1g.10gb", std::nullopt}).error().code,
            Code::conflict);
  EXPECT_EQ(open_sim("1xL4", "", true)->create_mig({0, "1g.10gb", std::nullopt}).error().code,
            Code::unsupported);
  const auto unknown = open_sim("1xH100+mig", "", true)->create_mig({0, "1g.11gb", std::nullopt});
  EXPECT_EQ(unknown.error().code, Code::infeasible);
  EXPECT_NE(unknown.error().message.find("3g.40gb"), std::string::npos);
}

}  // namespace
}  // namespace billow
