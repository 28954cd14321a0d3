#include "agent/isolate/mig_claims.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "base/file.h"
#include "base/log.h"

namespace billow::agent {

namespace {
// Sizes of neighbouring profiles differ by a factor of two; the driver reserves a few percent.
bool about(std::int64_t mem_mib, const GpuGrant& grant) {
  return std::llabs(mem_mib - grant.share.mem_mib) * 10 <= grant.share.mem_mib * 3;
}
}  // namespace

MigClaims::MigClaims(GpuBackend* backend, std::string file, std::vector<GpuInfo>& cards)
    : backend_(backend), file_(std::move(file)) {
  if (!backend_)
    return;
  const auto text = read_file(file_);
  std::istringstream lines(text ? *text : std::string());
  std::string uuid;
  for (Made made; lines >> uuid >> made.gpu >> made.instance;)
    made_[uuid] = made;
  for (GpuInfo& card : cards)
    std::erase_if(card.mig.instances,
                  [&](const MigInstance& instance) { return made_.contains(instance.uuid); });
}

Result<std::string> MigClaims::claim(TaskId task, const GpuInfo& card, const GpuGrant& grant) {
  const MigInstance* chosen = nullptr;
  std::string free;
  for (const MigInstance& instance : card.mig.instances) {
    if (instance.uuid.empty() || held_.contains(instance.uuid))
      continue;
    free += (free.empty() ? "" : ", ") + instance.profile;
    if (!about(instance.mem_mib, grant))
      continue;
    if (!chosen || static_cast<std::int32_t>(instance.placement.start) == grant.mig_start)
      chosen = &instance;
  }
  if (!chosen && backend_) {
    sweep();
    std::string uuid = BILLOW_TRY(make(card, grant));
    held_[uuid] = task;
    return uuid;
  }
  if (!chosen)
    return fail(Code::conflict,
                fmt::format("GPU {} has no free MIG instance of about {} MiB (free: {})",
                            card.index, grant.share.mem_mib, free.empty() ? "none" : free),
                "create instances as an administrator (nvidia-smi mig -cgi PROFILE -C), or let "
                "Billow create them: --allow-mig-changes");
  held_[chosen->uuid] = task;
  return chosen->uuid;
}

Result<std::string> MigClaims::make(const GpuInfo& card, const GpuGrant& grant) {
  const auto profiles = BILLOW_TRY(backend_->mig_profiles(card.index));
  const MigProfile* best = nullptr;
  for (const MigProfile& profile : profiles) {
    if (profile.name.find('+') != std::string::npos || !about(profile.mem_mib, grant))
      continue;
    const bool lies_there = std::ranges::any_of(profile.placements, [&](const MigPlacement& p) {
      return static_cast<std::int32_t>(p.start) == grant.mig_start;
    });
    if (!lies_there)
      continue;
    const auto off = [&](const MigProfile& p) {
      return std::llabs(static_cast<std::int64_t>(p.compute_slices) * 1000 / 7 -
                        grant.share.milli) *
                 1000 +
             std::llabs(p.mem_mib - grant.share.mem_mib) / 64;
    };
    if (!best || off(profile) < off(*best))
      best = &profile;
  }
  if (!best)
    return fail(Code::conflict, fmt::format("GPU {} has no MIG profile of about {} MiB at slice {}",
                                            card.index, grant.share.mem_mib, grant.mig_start));
  const MigInstance made = BILLOW_TRY(backend_->create_mig(
      {card.index, best->name,
       MigPlacement{static_cast<std::uint32_t>(grant.mig_start), best->memory_slices}}));
  made_[made.uuid] = {card.index, made.gpu_instance};
  save();
  log_info("created MIG instance {} at slice {} of GPU {}", best->name, grant.mig_start,
           card.index);
  return made.uuid;
}

void MigClaims::release(TaskId task) {
  if (std::erase_if(held_, [&](const auto& entry) { return entry.second == task; }) > 0)
    sweep();
}

void MigClaims::sweep() {
  if (!backend_)
    return;
  bool changed = false;
  for (auto it = made_.begin(); it != made_.end();) {
    if (held_.contains(it->first)) {
      ++it;
      continue;
    }
    if (const Status gone = backend_->destroy_mig(it->second.gpu, it->second.instance);
        !gone && gone.error().code != Code::not_found) {
      log_warn("a MIG instance of GPU {} could not be destroyed yet: {}", it->second.gpu,
               gone.error().message);
      ++it;
      continue;
    }
    it = made_.erase(it);
    changed = true;
  }
  if (changed)
    save();
}

void MigClaims::save() const {
  std::string text;
  for (const auto& [uuid, made] : made_)
    text += fmt::format("{} {} {}\n", uuid, made.gpu, made.instance);
  if (const Status written = write_file_atomic(file_, text); !written)
    log_warn("{}: {}", file_, written.error().message);
}

}  // namespace billow::agent
