// MIG through NVML: the shapes of a card, the existing instances, and (only with permission)
// creating and destroying them. The card's MIG mode is never changed here: that needs a reset and a
// person's decision.
#include <algorithm>

#include <fmt/format.h>

#include "gpu/mig.h"
#include "gpu/nvml_backend.h"

namespace billow {
namespace {

constexpr unsigned instances_max = 16;

// "1g.10gb" from slices and memory, as NVIDIA names them; drivers before 5xx do not report the
// name.
std::string profile_name(const nvml::GpuInstanceProfile& info, unsigned number) {
  const unsigned long long gb = (info.memory_mb + 1023) / 1024;
  const char* suffix = number == 0x7 || number == 0x8 ? "+me" : "";
  return fmt::format("{}g.{}gb{}", info.slice_count, gb, suffix);
}

}  // namespace

Result<NvmlBackend::DeviceEntry*> NvmlBackend::mig_entry(std::uint32_t index, bool change) {
  DeviceEntry* device = BILLOW_TRY(entry(index));
  if (!device->handle)
    return failed("MIG", index, device->opened);
  unsigned current = 0, pending = 0;
  const auto code =
      call_nvml(library_->call().nvmlDeviceGetMigMode, device->handle, &current, &pending);
  if (code == nvml::error_not_supported || code == nvml::error_function_not_found) {
    return fail(Code::unsupported, fmt::format("GPU {} ({}) cannot be cut into MIG instances",
                                               index, device->fixed.type));
  }
  if (code != nvml::success)
    return failed("MIG mode", index, code);
  if (change && !allow_mig_changes_) {
    return fail(
        Code::forbidden,
        fmt::format("GPU {}: creating and destroying MIG instances is not allowed on this node",
                    index),
        "start the agent with --allow-mig-changes to allow it");
  }
  if (change && current != 1) {
    return fail(Code::conflict, fmt::format("GPU {}: MIG mode is off", index),
                fmt::format("an administrator turns it on: nvidia-smi -i {} -mig 1", index));
  }
  return device;
}

Result<std::vector<MigProfile>> NvmlBackend::mig_profiles(std::uint32_t index) {
  const DeviceEntry* device = BILLOW_TRY(mig_entry(index, false));
  const NvmlFunctions& nvml = library_->call();
  std::vector<MigProfile> profiles;
  for (unsigned number = 0; number < nvml::gpu_profiles_max; ++number) {
    nvml::GpuInstanceProfile info{};
    if (call_nvml(nvml.nvmlDeviceGetGpuInstanceProfileInfo, device->handle, number, &info) !=
        nvml::success)
      continue;
    MigProfile profile;
    profile.id = info.id;
    profile.compute_slices = info.slice_count;
    profile.instances_max = info.instance_count;
    profile.mem_mib = static_cast<std::int64_t>(info.memory_mb);
    profile.name = profile_name(info, number);
    nvml::GpuInstanceProfileV2 named{};
    named.version = nvml::struct_version<nvml::GpuInstanceProfileV2>(2);
    if (call_nvml(nvml.nvmlDeviceGetGpuInstanceProfileInfoV, device->handle, number, &named) ==
            nvml::success &&
        named.name[0]) {
      std::string_view name(named.name, strnlen(named.name, sizeof named.name));
      if (name.starts_with("MIG "))
        name.remove_prefix(4);
      profile.name = name;
    }
    unsigned count = 0;
    std::vector<nvml::Placement> places;
    if (call_nvml(nvml.nvmlDeviceGetGpuInstancePossiblePlacements_v2, device->handle, info.id,
                  static_cast<nvml::Placement*>(nullptr), &count) == nvml::success) {
      places.resize(std::min(count, 64u));
      if (!places.empty() &&
          call_nvml(nvml.nvmlDeviceGetGpuInstancePossiblePlacements_v2, device->handle, info.id,
                    places.data(), &count) != nvml::success)
        places.clear();
    }
    for (const nvml::Placement& p : places) {
      profile.placements.push_back({p.start, p.size});
      profile.memory_slices = p.size;
    }
    profiles.push_back(std::move(profile));
  }
  return profiles;
}

Result<std::vector<MigInstance>> NvmlBackend::mig_instances(std::uint32_t index) {
  const DeviceEntry* device = BILLOW_TRY(mig_entry(index, false));
  const NvmlFunctions& nvml = library_->call();
  std::vector<MigInstance> instances;
  const auto profiles = BILLOW_TRY(mig_profiles(index));
  for (const MigProfile& profile : profiles) {
    nvml::GpuInstance handles[instances_max] = {};
    unsigned count = instances_max;
    if (call_nvml(nvml.nvmlDeviceGetGpuInstances, device->handle, profile.id, handles, &count) !=
        nvml::success)
      continue;
    for (unsigned i = 0; i < std::min(count, instances_max); ++i) {
      nvml::GpuInstanceInfo info{};
      if (call_nvml(nvml.nvmlGpuInstanceGetInfo, handles[i], &info) != nvml::success)
        continue;
      MigInstance instance;
      instance.gpu_instance = info.id;
      instance.profile = profile.name;
      instance.compute_slices = profile.compute_slices;
      instance.mem_mib = profile.mem_mib;
      instance.placement = {info.placement.start, info.placement.size};
      instances.push_back(std::move(instance));
    }
  }
  unsigned devices_count = 0;
  call_nvml(nvml.nvmlDeviceGetMaxMigDeviceCount, device->handle, &devices_count);
  for (unsigned i = 0; i < std::min(devices_count, instances_max); ++i) {
    nvml::Device mig = nullptr;
    unsigned id = 0, compute = 0;
    if (call_nvml(nvml.nvmlDeviceGetMigDeviceHandleByIndex, device->handle, i, &mig) !=
        nvml::success)
      continue;
    if (call_nvml(nvml.nvmlDeviceGetGpuInstanceId, mig, &id) != nvml::success)
      continue;
    call_nvml(nvml.nvmlDeviceGetComputeInstanceId, mig, &compute);
    char uuid[nvml::uuid_bytes] = {};
    call_nvml(nvml.nvmlDeviceGetUUID, mig, uuid, unsigned(sizeof uuid));
    for (MigInstance& instance : instances) {
      if (instance.gpu_instance != id || !instance.uuid.empty())
        continue;
      instance.compute_instance = compute;
      instance.uuid = uuid;
    }
  }
  std::ranges::sort(instances, {}, [](const MigInstance& i) { return i.placement.start; });
  return instances;
}

// A GPU instance and one compute instance that fills it: together they are a job's MIG device. Both
// or neither.
Result<MigInstance> NvmlBackend::create_mig(const MigCreate& request) {
  const DeviceEntry* device = BILLOW_TRY(mig_entry(request.index, true));
  const NvmlFunctions& nvml = library_->call();
  const auto profiles = BILLOW_TRY(mig_profiles(request.index));
  const auto before = BILLOW_TRY(mig_instances(request.index));
  const MigProfile* profile = BILLOW_TRY(find_mig_profile(profiles, request.profile));
  const MigPlacement place = request.placement
                                 ? *request.placement
                                 : BILLOW_TRY(best_placement(profiles, *profile, before));
  const nvml::Placement wanted{place.start, place.size};
  nvml::GpuInstance gpu_instance = nullptr;
  auto code = call_nvml(nvml.nvmlDeviceCreateGpuInstanceWithPlacement, device->handle, profile->id,
                        &wanted, &gpu_instance);
  if (code == nvml::error_function_not_found && !request.placement) {
    code = call_nvml(nvml.nvmlDeviceCreateGpuInstance, device->handle, profile->id, &gpu_instance);
  }
  if (code != nvml::success)
    return failed(fmt::format("create MIG {} at {}", profile->name, place.start), request.index,
                  code);

  nvml::GpuInstanceInfo info{};
  code = call_nvml(nvml.nvmlGpuInstanceGetInfo, gpu_instance, &info);
  nvml::ComputeInstance compute = nullptr;
  if (code == nvml::success) {
    code = nvml::error_not_found;
    for (unsigned number = 0; number < nvml::compute_profiles_max && code != nvml::success;
         ++number) {
      nvml::ComputeInstanceProfile shape{};
      if (call_nvml(nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo, gpu_instance, number, 0u,
                    &shape) != nvml::success)
        continue;
      if (shape.slice_count == profile->compute_slices)
        code =
            call_nvml(nvml.nvmlGpuInstanceCreateComputeInstance, gpu_instance, shape.id, &compute);
    }
  }
  if (code != nvml::success) {
    call_nvml(nvml.nvmlGpuInstanceDestroy, gpu_instance);
    return failed(fmt::format("create the compute instance of a MIG {}", profile->name),
                  request.index, code);
  }
  const auto after = BILLOW_TRY(mig_instances(request.index));
  for (const MigInstance& instance : after) {
    if (instance.gpu_instance == info.id)
      return instance;
  }
  return fail(Code::internal,
              fmt::format("GPU {}: the MIG instance just created is not listed", request.index));
}

Status NvmlBackend::destroy_mig(std::uint32_t index, std::uint32_t gpu_instance) {
  const DeviceEntry* device = BILLOW_TRY(mig_entry(index, true));
  const NvmlFunctions& nvml = library_->call();
  nvml::GpuInstance handle = nullptr;
  auto code = call_nvml(nvml.nvmlDeviceGetGpuInstanceById, device->handle, gpu_instance, &handle);
  if (code == nvml::error_not_found || code == nvml::error_invalid_argument) {
    return fail(Code::not_found, fmt::format("GPU {} has no MIG instance {}", index, gpu_instance));
  }
  if (code != nvml::success)
    return failed(fmt::format("MIG instance {}", gpu_instance), index, code);
  for (unsigned number = 0; number < nvml::compute_profiles_max; ++number) {
    nvml::ComputeInstanceProfile shape{};
    if (call_nvml(nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo, handle, number, 0u, &shape) !=
        nvml::success)
      continue;
    nvml::ComputeInstance computes[instances_max] = {};
    unsigned count = instances_max;
    if (call_nvml(nvml.nvmlGpuInstanceGetComputeInstances, handle, shape.id, computes, &count) !=
        nvml::success)
      continue;
    for (unsigned i = 0; i < std::min(count, instances_max); ++i) {
      code = call_nvml(nvml.nvmlComputeInstanceDestroy, computes[i]);
      if (code != nvml::success)
        return failed(fmt::format("destroy a compute instance of MIG instance {}", gpu_instance),
                      index, code);
    }
  }
  code = call_nvml(nvml.nvmlGpuInstanceDestroy, handle);
  if (code != nvml::success)
    return failed(fmt::format("destroy MIG instance {}", gpu_instance), index, code);
  return {};
}

}  // namespace billow
