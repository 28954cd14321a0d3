// The text of the admin command `status`.
#include <algorithm>

#include "gpumem/service.h"

namespace billow::gpumem {

std::string Service::lower_text() const {
  const Rates rates = lower_->rates();
  const auto number = [](double n) {
    return std::to_string(static_cast<std::uint64_t>(n));
  };
  std::string why = lower_->file_error();
  std::replace(why.begin(), why.end(), ' ', '_');
  return "lower memory=" + std::to_string(lower_->memory_bytes()) +
         " memory_used=" + std::to_string(lower_->memory_used()) +
         " file=" + std::to_string(lower_->file_bytes()) +
         " file_used=" + std::to_string(lower_->file_used()) + " gpu_rate=" + number(rates.gpu) +
         " memory_rate=" + number(rates.memory) + " read_rate=" + number(rates.read) +
         " write_rate=" + number(rates.write) + " pack_rate=" + number(rates.pack) +
         " unpack_rate=" + number(rates.unpack) + (why.empty() ? "" : " file_error=" + why) + "\n";
}

// Where a suspended job's memory is, and how long its copies take on resume.
std::string Service::asleep_text(const Job& job) {
  if (!tiers_ || job.phase != JobPhase::suspended)
    return "";
  const PieceStore::Amounts a = tiers_->amounts(job.tenant);
  return " arena=" + std::to_string(a.arena) + " memory=" + std::to_string(a.memory) +
         " memory_stored=" + std::to_string(a.memory_stored) + " file=" + std::to_string(a.file) +
         " file_stored=" + std::to_string(a.file_stored) +
         " wake_ms=" + std::to_string(static_cast<std::uint64_t>(tiers_->wake_seconds(a) * 1000));
}

std::string Service::status_text() {
  std::string out;
  const auto number = [](std::uint64_t n) {
    return std::to_string(n);
  };
  if (arena_)
    out += "arena bytes=" + number(arena_->slots() * Arena::slot_bytes) +
           " ready=" + number(arena_->ready_bytes()) +
           " free=" + number(arena_->free_slots() * Arena::slot_bytes) +
           " available=" + number(library_.available() * Arena::slot_bytes) +
           " dirty=" + number(arena_->dirty_slots() * Arena::slot_bytes) +
           " reserved=" + number(arena_->reserved_bytes()) + "\n" + lower_text();
  const std::lock_guard guard(lock_);
  for (const auto& [name, job] : jobs_) {
    const std::lock_guard job_guard(job->lock);
    std::uint64_t used = 0, features = 0, residue = 0, backed = 0, launches = 0, refused = 0,
                  passed_by = 0, metered = 0, waiters = 0;
    for (const auto& slot : job->usage->slots) {
      for (std::uint64_t bytes : slot.used_bytes)
        used += bytes;
      features |= slot.features;
      residue += slot.residue_bytes;
      backed += slot.backed_bytes;
      launches += slot.launches;
      refused += slot.refused;
      passed_by += slot.passed_by;
      metered += slot.metered_ns;
      waiters += slot.waiters;
    }
    std::int64_t turn_ns = 0;
    std::uint64_t turns = 0;
    double together = 1;
    for (auto& entry : arbiters_) {
      turn_ns += entry.second.used_ns(job->tenant);
      turns += entry.second.turns(job->tenant);
      together = std::min(together, entry.second.rate_together(job->tenant));
    }
    std::string pids;
    for (const auto& link : job->links)
      pids += (pids.empty() ? "" : ",") + std::to_string(link->pid());
    out += "job name=" + name + " phase=" + phase_name(job->phase) +
           " cold=" + (job->checkpointed ? "1" : "0") + " pids=" + (pids.empty() ? "-" : pids) +
           " used=" + number(used) + " backed=" + number(backed) + " residue=" + number(residue) +
           " features=" + number(features) +
           " blocks_suspend=" + number(features & BILLOW_BLOCKS_SUSPEND ? 1 : 0) +
           " launches=" + number(launches) + " refused=" + number(refused) +
           " passed_by=" + number(passed_by) + " metered_ns=" + number(metered) +
           " waiters=" + number(waiters) + " gpu_ns=" + std::to_string(turn_ns) +
           " turns=" + number(turns) +
           " together_milli=" + number(static_cast<std::uint64_t>(together * 1000)) +
           " gate=" + number(job->limit->gate) + asleep_text(*job) + "\n";
  }
  return out;
}

}  // namespace billow::gpumem
