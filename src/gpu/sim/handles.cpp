#include "gpu/sim/handles.h"

#include <algorithm>
#include <cstring>

namespace billow::sim {

Library& Library::instance() {
  static Library* library = new Library;  // never destroyed: calls may come during process exit
  return *library;
}

nvml::Device Library::card_handle(unsigned gpu) {
  auto& slot = cards[gpu];
  if (!slot)
    slot.reset(new nvml::DeviceObject{gpu, 0});
  return slot.get();
}
nvml::Device Library::mig_handle(unsigned gpu, unsigned gpu_instance) {
  auto& slot = mig_devices[{gpu, gpu_instance}];
  if (!slot)
    slot.reset(new nvml::DeviceObject{gpu, gpu_instance});
  return slot.get();
}
nvml::GpuInstance Library::gpu_instance_handle(unsigned gpu, unsigned id) {
  auto& slot = gpu_instances[{gpu, id}];
  if (!slot)
    slot.reset(new nvml::GpuInstanceObject{gpu, id});
  return slot.get();
}
nvml::ComputeInstance Library::compute_instance_handle(unsigned gpu, unsigned id) {
  auto& slot = compute_instances[{gpu, id}];
  if (!slot)
    slot.reset(new nvml::ComputeInstanceObject{gpu, id});
  return slot.get();
}

void Library::forget_all() {
  simulator.reset();
  cards.clear();
  mig_devices.clear();
  gpu_instances.clear();
  compute_instances.clear();
  event_sets.clear();
  gpm_samples.clear();
  spec_given.clear();
  state_given.clear();
}

Call enter() {
  Call call;
  call.lock = std::unique_lock(call.library.mutex);
  if (!call.library.simulator)
    call.code = nvml::error_uninitialized;
  else
    call.library.simulator->refresh();
  return call;
}

namespace {

void find_instance(Call& call, unsigned id) {
  auto& instances = call.card->instances;
  const auto found = std::ranges::find(instances, id, &SimMigInstance::id);
  if (found == instances.end())
    call.code = nvml::error_not_found;
  else
    call.instance = &*found;
}

}  // namespace

Call enter(nvml::Device device, bool mig_allowed) {
  Call call = enter();
  if (!call)
    return call;
  const auto is_it = [&](const auto& item) {
    return item.second.get() == device;
  };
  const bool card = std::ranges::any_of(call.library.cards, is_it);
  const bool mig = !card && std::ranges::any_of(call.library.mig_devices, is_it);
  if (!card && !(mig && mig_allowed)) {
    call.code = nvml::error_invalid_argument;
    return call;
  }
  call.card = &call.simulator().cards()[device->gpu];
  if (call.card->lost)
    call.code = nvml::error_gpu_is_lost;
  else if (mig)
    find_instance(call, device->gpu_instance);
  return call;
}

Call enter(nvml::GpuInstance instance) {
  Call call = enter();
  if (!call)
    return call;
  if (!std::ranges::any_of(call.library.gpu_instances,
                           [&](const auto& item) { return item.second.get() == instance; })) {
    call.code = nvml::error_invalid_argument;
    return call;
  }
  call.card = &call.simulator().cards()[instance->gpu];
  if (call.card->lost)
    call.code = nvml::error_gpu_is_lost;
  else
    find_instance(call, instance->id);
  return call;
}

nvml::Return copy_text(const std::string& text, char* out, unsigned length) {
  if (!out)
    return nvml::error_invalid_argument;
  if (text.size() + 1 > length)
    return nvml::error_insufficient_size;
  std::memcpy(out, text.c_str(), text.size() + 1);
  return nvml::success;
}

const SimMigProfile& profile_of(const Call& call) {
  return call.card->profiles[call.instance->profile];
}

}  // namespace billow::sim
