// Resumes a job: check that its memory fits, restore what the driver checkpointed, copy the chunks
// back. A step that fails leaves the job suspended. A swap resumes one job while another suspends.
#include <algorithm>
#include <chrono>
#include <thread>

#include "gpumem/service.h"
#include "gpumem/steady.h"

namespace billow::gpumem {

// Undoes half a restore: frees memory that was not filled yet and saves the rest again. What does
// not leave stays on the device; a later resume goes on from there, because the shim's answers to
// RELEASE and CREATE do not depend on where a chunk is.
void Service::put_back(Job& job) {
  // The images stay as they are while the operation is held; the job's lock must not wait for a
  // process.
  std::vector<std::pair<std::shared_ptr<ShimLink>, ChunkImage*>> arriving;
  {
    const std::lock_guard guard(job.lock);
    for (auto& [link, places] : job.images)
      for (auto& [place, chunks] : places)
        for (ChunkImage& chunk : chunks)
          if (chunk.arriving)
            arriving.emplace_back(link, &chunk);
  }
  for (auto& [link, chunk] : arriving) {
    const std::uint64_t id = chunk->id;
    (void)link->ask(BILLOW_RELEASE, 0, {&id, 1}, 10000);
    const std::lock_guard guard(job.lock);
    chunk->arriving = false;
    chunk->out = true;
    job.resident_bytes -= static_cast<std::int64_t>(chunk->bytes);
  }
  (void)move(job, true, {});
}

Status Service::restore(Job& job) {
  std::vector<int> pids;
  {
    const std::lock_guard guard(job.lock);
    pids = job.checkpointed_pids;
  }
  const auto lives = [&](int pid) {
    const std::lock_guard guard(job.lock);
    return std::any_of(job.links.begin(), job.links.end(),
                       [&](const auto& link) { return link->pid() == pid && !link->closed(); });
  };
  for (int pid : pids) {
    if (lives(pid))
      if (const Status restored = restore_pids({pid}); !restored) {
        // A process that was killed is not restored; its connection may end a moment later.
        for (int tries = 0; tries < 20 && lives(pid); tries++)
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
        if (lives(pid))
          return restored;
      }
    const std::lock_guard guard(job.lock);
    std::erase(job.checkpointed_pids, pid);
  }
  const std::lock_guard guard(job.lock);
  job.checkpointed = false;
  return {};
}

// How much memory the job needs on each of its devices.
std::map<std::uint32_t, std::uint64_t> Service::bytes_needed(Job& job) {
  std::map<std::uint32_t, std::uint64_t> needed;
  for (auto& [link, places] : job.images)
    for (auto& [place, chunks] : places)
      for (const ChunkImage& chunk : chunks)
        needed[place] += chunk.out ? chunk.bytes : 0;
  return needed;
}

// Checked before a restore begins: a restore that runs out of memory half way can destroy the job.
Status Service::check_free_memory(const Job& job,
                                  const std::map<std::uint32_t, std::uint64_t>& needed) {
  for (const auto& [place, bytes] : needed) {
    const std::uint64_t free_now = BILLOW_TRY(BILLOW_TRY(gpu_of(job, place))->free_bytes());
    if (free_now < bytes + (job.checkpointed ? job.spec.devices[place].context_bytes : 0))
      return fail(Code::exhausted,
                  "the GPU has " + std::to_string(free_now >> 20) + " MiB free, job " +
                      job.spec.name + " needs " + std::to_string(bytes >> 20) + " MiB",
                  "suspend or stop another job first");
  }
  return {};
}

// Waits until `bytes` more fit beside what the leaving job still holds. False after two minutes.
bool Service::wait_for_space(Job& job,
                             Job& leaving,
                             std::uint64_t bytes,
                             std::uint64_t allowance_bytes) {
  const std::int64_t deadline = steady_ns() + 120'000'000'000;
  while (job.resident_bytes + leaving.resident_bytes + static_cast<std::int64_t>(bytes) >
         static_cast<std::int64_t>(allowance_bytes)) {
    leaving.space_wanted = true;
    if (steady_ns() > deadline)
      return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  leaving.space_wanted = false;
  return true;
}

// Moves the job's memory back. A process whose driver refuses for good (it is being torn down, or
// broken by the program) is given up: its CUDA calls fail from then on, so that the program ends
// instead of waiting for memory that cannot return.
Result<MoveCounts> Service::move_in(Job& job,
                                    const std::function<bool(std::uint64_t)>& may_create,
                                    MoveReport& report) {
  for (;;) {
    auto moved = move(job, false, may_create);
    if (moved)
      return moved;
    bool given_up = false;
    {
      const std::lock_guard guard(job.lock);
      for (auto& entry : job.images)
        if (const auto& link = entry.first;
            link->broken &&
            std::find(report.lost.begin(), report.lost.end(), link->pid()) == report.lost.end()) {
          report.lost.push_back(link->pid());
          given_up = true;
        }
    }
    if (!given_up)
      return moved;
  }
}

Result<MoveReport> Service::resume(const std::string& name,
                                   std::uint64_t allowance_bytes,
                                   Job* leaving) {
  const std::int64_t start = steady_ns();
  const auto job = find(name);
  if (!job)
    return fail(Code::not_found, "the GPU memory service has no job " + name);
  const std::lock_guard operation(job->operation);
  drop_ended(*job);
  std::map<std::uint32_t, std::uint64_t> needed;
  {
    const std::lock_guard guard(job->lock);
    if (job->phase != JobPhase::suspended)
      return fail(Code::conflict, "job " + name + " is " + phase_name(job->phase));
    needed = bytes_needed(*job);
  }
  if (!leaving)
    BILLOW_TRY_VOID(check_free_memory(*job, needed));
  set_phase(*job, JobPhase::resuming);
  MoveReport report;
  report.cold = job->checkpointed;
  const auto still_suspended = [&](Error error) -> Result<MoveReport> {
    set_phase(*job, JobPhase::suspended);
    return pass(std::move(error));
  };
  if (job->checkpointed)
    if (const Status restored = restore(*job); !restored)
      return still_suspended(restored.error());
  report.residue_seconds = seconds_since(start);
  std::function<bool(std::uint64_t)> may_create;
  if (leaving)
    may_create = [&](std::uint64_t bytes) {
      return wait_for_space(*job, *leaving, bytes, allowance_bytes);
    };
  const auto moved = move_in(*job, may_create, report);
  if (!moved) {
    put_back(*job);
    return still_suspended(moved.error());
  }
  report.counts = *moved;
  tiers_->awake(job->tenant, true);
  attach(*job);
  open(*job);
  drop_ended(*job);
  const std::lock_guard guard(job->lock);
  job->phase = JobPhase::running;
  report.seconds = seconds_since(start);
  return report;
}

Result<std::pair<MoveReport, MoveReport>> Service::swap(const std::string& out,
                                                        const std::string& in,
                                                        std::uint64_t allowance_bytes,
                                                        int timeout_ms) {
  const auto leaving = find(out), coming = find(in);
  if (!leaving || !coming || leaving == coming)
    return fail(Code::not_found,
                "a swap needs two different jobs that are registered with the GPU memory service");
  std::uint64_t backed = 0;
  for (const auto& slot : leaving->usage->slots)
    backed += slot.backed_bytes;
  leaving->resident_bytes = static_cast<std::int64_t>(backed);
  coming->resident_bytes = 0;
  if (!allowance_bytes) {
    allowance_bytes = backed;
    for (std::uint32_t place = 0; place < coming->spec.devices.size(); place++)
      allowance_bytes += BILLOW_TRY(BILLOW_TRY(gpu_of(*coming, place))->free_bytes()) * 15 /
                         16;  // page tables and fragmentation need the rest
  }
  leaving->space_wanted = false;
  leaving->swapping = true;
  Result<MoveReport> left = MoveReport{}, came = MoveReport{};
  std::thread going([&] { left = suspend(out, false, timeout_ms); });
  came = resume(in, allowance_bytes, leaving.get());
  leaving->swapping = false;
  going.join();
  if (!left)
    return pass(left.error(), "suspending job " + out);
  if (!came)
    return pass(came.error(), "resuming job " + in);
  return std::pair{*left, *came};
}

}  // namespace billow::gpumem
