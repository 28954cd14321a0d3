#include "gpu/mig.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/text.h"

namespace billow {
namespace {

bool overlap(const MigPlacement& a, const MigPlacement& b) {
  return a.start < b.start + b.size && b.start < a.start + a.size;
}

MigInstance instance_of(const MigProfile& profile, MigPlacement placement) {
  MigInstance instance;
  instance.profile = profile.name;
  instance.compute_slices = profile.compute_slices;
  instance.mem_mib = profile.mem_mib;
  instance.placement = placement;
  return instance;
}

// How many more instances of this profile would fit, filled greedily from the left. This is exact,
// because the places of one profile are intervals of one length.
std::size_t how_many_fit(const MigProfile& profile, std::vector<MigInstance> instances) {
  std::size_t n = 0;
  for (;; ++n) {
    const auto places = free_placements(profile, instances);
    if (places.empty())
      return n;
    instances.push_back(instance_of(profile, places.front()));
  }
}

}  // namespace

Result<const MigProfile*> find_mig_profile(std::span<const MigProfile> profiles,
                                           std::string_view name) {
  std::vector<std::string> names;
  for (const MigProfile& profile : profiles) {
    if (profile.name == name)
      return &profile;
    names.push_back(profile.name);
  }
  const std::string close = nearest(name, names);
  return fail(Code::infeasible,
              fmt::format("no MIG profile {} on this card; it has {}", name, join(names, ", ")),
              close.empty() ? "" : fmt::format("did you mean {}?", close));
}

std::vector<MigPlacement> free_placements(const MigProfile& profile,
                                          std::span<const MigInstance> instances) {
  std::uint32_t compute = profile.compute_slices, same = 0;
  for (const MigInstance& instance : instances) {
    compute += instance.compute_slices;
    same += instance.profile == profile.name;
  }
  std::vector<MigPlacement> places;
  if (compute > mig_compute_slices_max || same >= profile.instances_max)
    return places;
  for (const MigPlacement& place : profile.placements) {
    const bool taken = std::ranges::any_of(
        instances, [&](const MigInstance& i) { return overlap(i.placement, place); });
    if (!taken)
      places.push_back(place);
  }
  std::ranges::sort(places, {}, &MigPlacement::start);
  return places;
}

Result<MigPlacement> best_placement(std::span<const MigProfile> profiles,
                                    const MigProfile& profile,
                                    std::span<const MigInstance> instances) {
  const auto places = free_placements(profile, instances);
  if (places.empty()) {
    std::vector<std::string> present;
    for (const MigInstance& i : instances)
      present.push_back(fmt::format("{} at {}", i.profile, i.placement.start));
    return fail(Code::exhausted,
                fmt::format("no space for a {} beside {}", profile.name,
                            present.empty() ? "nothing" : join(present, ", ")),
                "wait for an instance to end, or ask for a smaller profile");
  }
  std::vector<const MigProfile*> by_size;
  for (const MigProfile& p : profiles)
    by_size.push_back(&p);
  std::ranges::stable_sort(by_size, [](const auto* a, const auto* b) {
    return std::pair(a->memory_slices, a->compute_slices) >
           std::pair(b->memory_slices, b->compute_slices);
  });
  MigPlacement best = places.front();
  std::vector<std::size_t> best_left;
  for (const MigPlacement& place : places) {
    std::vector<MigInstance> after(instances.begin(), instances.end());
    after.push_back(instance_of(profile, place));
    std::vector<std::size_t> left;
    for (const MigProfile* p : by_size)
      left.push_back(how_many_fit(*p, after));
    // Later places win ties: the 4g shape fits only at the left end.
    if (left >= best_left) {
      best_left = std::move(left);
      best = place;
    }
  }
  return best;
}

}  // namespace billow
