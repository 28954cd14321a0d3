// MIG: shapes, instances and devices of the simulated cards.
#include <algorithm>
#include <cstdio>

#include "gpu/sim/handles.h"

using namespace billow;
using namespace billow::sim;
using namespace billow::nvml;

namespace {

// A card that supports MIG and, if required, has MIG mode enabled.
Call enter_mig(Device device, bool enabled) {
  Call call = enter(device);
  if (!call)
    return call;
  if (!call.card->spec.facts->mig || (enabled && !call.card->spec.mig))
    call.code = error_not_supported;
  return call;
}

const SimMigProfile* profile_by_number(const Call& call, unsigned number) {
  for (const SimMigProfile& profile : call.card->profiles)
    if (profile.number == number)
      return &profile;
  return nullptr;
}

// Compute instance profiles of a GPU instance: 1, 2, 3, 4 and 7 slices, those that fit; the id is
// the number.
constexpr unsigned compute_slices_of[] = {1, 2, 3, 4, 7};

}  // namespace

Return nvmlDeviceGetMigMode(Device device, unsigned* current, unsigned* pending) {
  Call call = enter_mig(device, false);
  if (!call)
    return call.code;
  if (!current || !pending)
    return error_invalid_argument;
  *current = *pending = call.card->spec.mig ? 1 : 0;
  return success;
}

Return nvmlDeviceGetMaxMigDeviceCount(Device device, unsigned* count) {
  Call call = enter(device);
  if (!call)
    return call.code;
  if (!count)
    return error_invalid_argument;
  *count = call.card->spec.facts->mig ? 7 : 0;
  return success;
}

Return nvmlDeviceGetMigDeviceHandleByIndex(Device device, unsigned index, Device* mig) {
  Call call = enter_mig(device, true);
  if (!call)
    return call.code;
  if (!mig)
    return error_invalid_argument;
  unsigned seen = 0;
  for (const SimMigInstance& instance : call.card->instances) {
    if (!instance.compute || seen++ != index)
      continue;
    *mig = call.library.mig_handle(call.card->index, instance.id);
    return success;
  }
  return error_not_found;
}

Return nvmlDeviceGetGpuInstanceId(Device mig, unsigned* id) {
  Call call = enter(mig, true);
  if (!call)
    return call.code;
  if (!id || !call.instance)
    return error_invalid_argument;
  *id = call.instance->id;
  return success;
}

Return nvmlDeviceGetComputeInstanceId(Device mig, unsigned* id) {
  Call call = enter(mig, true);
  if (!call)
    return call.code;
  if (!id || !call.instance)
    return error_invalid_argument;
  *id = 0;
  return success;
}

Return nvmlDeviceGetAttributes_v2(Device mig, DeviceAttributes* attributes) {
  Call call = enter(mig, true);
  if (!call)
    return call.code;
  if (!attributes || !call.instance)
    return error_invalid_argument;
  *attributes = {};
  attributes->gpu_instance_slices = attributes->compute_instance_slices =
      profile_of(call).compute_slices;
  attributes->memory_mb = static_cast<unsigned long long>(profile_of(call).mem_mib);
  return success;
}

Return nvmlDeviceGetGpuInstanceProfileInfo(Device device,
                                           unsigned number,
                                           GpuInstanceProfile* info) {
  Call call = enter_mig(device, false);
  if (!call)
    return call.code;
  const SimMigProfile* profile = profile_by_number(call, number);
  if (!info || number >= gpu_profiles_max)
    return error_invalid_argument;
  if (!profile)
    return error_not_supported;
  *info = {};
  info->id = profile->id;
  info->slice_count = profile->compute_slices;
  info->instance_count = profile->instances_max;
  info->multiprocessor_count = profile->compute_slices * 14;
  info->copy_engines = profile->memory_slices;
  info->memory_mb = static_cast<unsigned long long>(profile->mem_mib);
  return success;
}

Return nvmlDeviceGetGpuInstanceProfileInfoV(Device device,
                                            unsigned number,
                                            GpuInstanceProfileV2* info) {
  if (!info)
    return error_invalid_argument;
  if (info->version != struct_version<GpuInstanceProfileV2>(2))
    return error_argument_version;
  GpuInstanceProfile plain{};
  if (const Return code = nvmlDeviceGetGpuInstanceProfileInfo(device, number, &plain);
      code != success)
    return code;
  Call call = enter_mig(device, false);
  if (!call)
    return call.code;
  const unsigned version = info->version;
  *info = {};
  info->version = version;
  info->id = plain.id;
  info->slice_count = plain.slice_count;
  info->instance_count = plain.instance_count;
  info->multiprocessor_count = plain.multiprocessor_count;
  info->copy_engines = plain.copy_engines;
  info->memory_mb = plain.memory_mb;
  std::snprintf(info->name, sizeof info->name, "MIG %s",
                profile_by_number(call, number)->name.c_str());
  return success;
}

Return nvmlDeviceGetGpuInstancePossiblePlacements_v2(Device device,
                                                     unsigned profile_id,
                                                     Placement* placements,
                                                     unsigned* count) {
  Call call = enter_mig(device, false);
  if (!call)
    return call.code;
  const int found = call.simulator().profile_by_id(*call.card, profile_id);
  if (found < 0 || !count)
    return error_invalid_argument;
  const SimMigProfile& profile = call.card->profiles[static_cast<std::size_t>(found)];
  const unsigned capacity = *count;
  *count = static_cast<unsigned>(profile.starts.size());
  if (!placements)
    return success;
  if (capacity < *count)
    return error_insufficient_size;
  for (std::size_t i = 0; i < profile.starts.size(); ++i)
    placements[i] = {profile.starts[i], profile.memory_slices};
  return success;
}

Return nvmlDeviceGetGpuInstanceRemainingCapacity(Device device,
                                                 unsigned profile_id,
                                                 unsigned* count) {
  Call call = enter_mig(device, true);
  if (!call)
    return call.code;
  const int found = call.simulator().profile_by_id(*call.card, profile_id);
  if (found < 0 || !count)
    return error_invalid_argument;
  // How many could be created one after the other, from the left.
  SimCard trial = *call.card;
  unsigned n = 0;
  for (std::vector<unsigned> starts;
       !(starts = call.simulator().free_starts(trial, static_cast<unsigned>(found))).empty(); ++n) {
    trial.instances.push_back({1000 + n, static_cast<unsigned>(found), starts.front(), false});
  }
  *count = n;
  return success;
}

Return nvmlDeviceGetGpuInstances(Device device,
                                 unsigned profile_id,
                                 GpuInstance* instances,
                                 unsigned* count) {
  Call call = enter_mig(device, true);
  if (!call)
    return call.code;
  const int found = call.simulator().profile_by_id(*call.card, profile_id);
  if (found < 0 || !instances || !count)
    return error_invalid_argument;
  unsigned n = 0;
  for (const SimMigInstance& instance : call.card->instances) {
    if (instance.profile == static_cast<unsigned>(found))
      instances[n++] = call.library.gpu_instance_handle(call.card->index, instance.id);
  }
  *count = n;
  return success;
}

Return nvmlDeviceGetGpuInstanceById(Device device, unsigned id, GpuInstance* instance) {
  Call call = enter_mig(device, true);
  if (!call)
    return call.code;
  if (!instance)
    return error_invalid_argument;
  if (!std::ranges::any_of(call.card->instances,
                           [&](const SimMigInstance& i) { return i.id == id; }))
    return error_not_found;
  *instance = call.library.gpu_instance_handle(call.card->index, id);
  return success;
}

Return nvmlDeviceCreateGpuInstanceWithPlacement(Device device,
                                                unsigned profile_id,
                                                const Placement* placement,
                                                GpuInstance* instance) {
  Call call = enter_mig(device, true);
  if (!call)
    return call.code;
  const int found = call.simulator().profile_by_id(*call.card, profile_id);
  if (found < 0 || !instance)
    return error_invalid_argument;
  const auto profile = static_cast<unsigned>(found);
  const auto starts = call.simulator().free_starts(*call.card, profile);
  if (starts.empty())
    return error_insufficient_resources;
  unsigned start = starts.front();
  if (placement) {
    const SimMigProfile& shape = call.card->profiles[profile];
    if (placement->size != shape.memory_slices ||
        std::ranges::find(shape.starts, placement->start) == shape.starts.end())
      return error_invalid_argument;
    if (std::ranges::find(starts, placement->start) == starts.end())
      return error_insufficient_resources;
    start = placement->start;
  }
  const SimMigInstance* made = call.simulator().create_instance(*call.card, profile, start);
  *instance = call.library.gpu_instance_handle(call.card->index, made->id);
  return success;
}
Return nvmlDeviceCreateGpuInstance(Device device, unsigned profile_id, GpuInstance* instance) {
  return nvmlDeviceCreateGpuInstanceWithPlacement(device, profile_id, nullptr, instance);
}

Return nvmlGpuInstanceDestroy(GpuInstance instance) {
  Call call = enter(instance);
  if (!call)
    return call.code;
  const unsigned id = call.instance->id;
  const bool busy = std::ranges::any_of(
      call.card->processes, [&](const SimGpuProcess& p) { return p.gpu_instance == id; });
  if (call.instance->compute || busy)
    return error_in_use;
  return call.simulator().destroy_instance(*call.card, id) ? success : error_not_found;
}

Return nvmlGpuInstanceGetInfo(GpuInstance instance, GpuInstanceInfo* info) {
  Call call = enter(instance);
  if (!call)
    return call.code;
  if (!info)
    return error_invalid_argument;
  const SimMigProfile& profile = profile_of(call);
  *info = {call.library.card_handle(call.card->index),
           call.instance->id,
           profile.id,
           {call.instance->start, profile.memory_slices}};
  return success;
}

Return nvmlGpuInstanceGetComputeInstanceProfileInfo(GpuInstance instance,
                                                    unsigned number,
                                                    unsigned engine,
                                                    ComputeInstanceProfile* info) {
  Call call = enter(instance);
  if (!call)
    return call.code;
  if (!info || engine != 0)
    return error_invalid_argument;
  if (number >= std::size(compute_slices_of) ||
      compute_slices_of[number] > profile_of(call).compute_slices)
    return error_not_supported;
  *info = {};
  info->id = number;
  info->slice_count = compute_slices_of[number];
  info->instance_count = profile_of(call).compute_slices / info->slice_count;
  return success;
}

Return nvmlGpuInstanceGetComputeInstances(GpuInstance instance,
                                          unsigned profile_id,
                                          ComputeInstance* instances,
                                          unsigned* count) {
  Call call = enter(instance);
  if (!call)
    return call.code;
  if (!instances || !count || profile_id >= std::size(compute_slices_of))
    return error_invalid_argument;
  const bool here =
      call.instance->compute && compute_slices_of[profile_id] == profile_of(call).compute_slices;
  *count = here ? 1 : 0;
  if (here)
    instances[0] = call.library.compute_instance_handle(call.card->index, call.instance->id);
  return success;
}

// One compute instance per GPU instance, of the same size: the only kind that Billow creates.
Return nvmlGpuInstanceCreateComputeInstance(GpuInstance instance,
                                            unsigned profile_id,
                                            ComputeInstance* compute) {
  Call call = enter(instance);
  if (!call)
    return call.code;
  if (!compute || profile_id >= std::size(compute_slices_of))
    return error_invalid_argument;
  if (compute_slices_of[profile_id] != profile_of(call).compute_slices)
    return error_not_supported;
  if (call.instance->compute)
    return error_insufficient_resources;
  call.simulator().set_compute(*call.card, call.instance->id, true);
  *compute = call.library.compute_instance_handle(call.card->index, call.instance->id);
  return success;
}

namespace {
Call enter(ComputeInstance compute) {
  GpuInstance parent = nullptr;
  {
    Call call = billow::sim::enter();
    if (!call)
      return call;
    if (!std::ranges::any_of(call.library.compute_instances,
                             [&](const auto& item) { return item.second.get() == compute; })) {
      call.code = error_invalid_argument;
      return call;
    }
    parent = call.library.gpu_instance_handle(compute->gpu, compute->gpu_instance);
  }
  Call call = billow::sim::enter(parent);
  if (call && !call.instance->compute)
    call.code = error_not_found;
  return call;
}
}  // namespace

Return nvmlComputeInstanceDestroy(ComputeInstance compute) {
  Call call = enter(compute);
  if (!call)
    return call.code;
  const unsigned id = call.instance->id;
  if (std::ranges::any_of(call.card->processes,
                          [&](const SimGpuProcess& p) { return p.gpu_instance == id; }))
    return error_in_use;
  return call.simulator().set_compute(*call.card, id, false) ? success : error_not_found;
}

Return nvmlComputeInstanceGetInfo_v2(ComputeInstance compute, ComputeInstanceInfo* info) {
  Call call = enter(compute);
  if (!call)
    return call.code;
  if (!info)
    return error_invalid_argument;
  const unsigned slices = profile_of(call).compute_slices;
  const auto number = std::ranges::find(compute_slices_of, slices) - std::begin(compute_slices_of);
  *info = {call.library.card_handle(call.card->index),
           call.library.gpu_instance_handle(call.card->index, call.instance->id),
           0,
           static_cast<unsigned>(number),
           {0, slices}};
  return success;
}
