// Suspends a job, step by step: close the gates (closing.cpp), list the chunks, copy them into the
// arena, and for a cold suspend let the driver checkpoint the rest. A step that fails leaves the
// job running.
#include <algorithm>
#include <chrono>
#include <thread>

#include "gpumem/service.h"
#include "gpumem/steady.h"

namespace billow::gpumem {

// Asks every process which chunks it has. Without the job's lock: the status of all jobs and the
// connections of other processes wait for it.
Status Service::list_chunks(Job& job, const std::vector<std::shared_ptr<ShimLink>>& links) {
  std::uint64_t left = list_items_max;  // of all processes together
  for (auto& link : links) {
    if (link->closed())
      continue;
    const auto chunks = link->list<billow_chunk>(BILLOW_LIST);
    if (!chunks && !link->closed())
      return pass(chunks.error());
    std::map<std::uint32_t, std::vector<ChunkImage>> fresh;
    for (const billow_chunk& chunk : chunks ? *chunks : std::vector<billow_chunk>{}) {
      if (chunk.device >= job.spec.devices.size())
        continue;
      if (chunk.bytes == 0 || chunk.bytes > chunk_bytes_max || left-- == 0)
        return fail(Code::unsupported,
                    "a process of job " + job.spec.name +
                        " has a chunk of more than 16 GiB, or more chunks than a node has memory",
                    "let the program allocate in smaller pieces");
      fresh[chunk.device].push_back({chunk.id, chunk.bytes, {}, false, false});
    }
    const std::lock_guard guard(job.lock);
    // An image of a suspend that failed half way.
    drop_image(job, job.images[link]);
    job.images[link] = std::move(fresh);
  }
  return {};
}

namespace {

constexpr std::uint64_t rated_bytes = 256u << 20;  // smaller moves say little about the rate

const char* blocking_feature(std::uint64_t features) {
  if (features & BILLOW_USES_UVM)
    return "managed memory";
  if (features & BILLOW_USES_IPC)
    return "memory pools shared between processes";
  if (features & BILLOW_USES_EXTERNAL)
    return "memory of another graphics API or device";
  return "NVLink multicast";
}

}  // namespace

Result<std::uint64_t> Service::check_suspendable(Job& job, int timeout_ms) {
  std::uint64_t features = 0, backed = 0;
  {
    const std::lock_guard guard(job.lock);
    for (const auto& slot : job.usage->slots) {
      features |= slot.features;
      backed += slot.backed_bytes;
    }
  }
  if (features & BILLOW_BLOCKS_SUSPEND)
    return fail(Code::unsupported, "job " + job.spec.name + " uses " + blocking_feature(features) +
                                       ", which cannot be suspended");
  if (backed <= library_.available() * Arena::slot_bytes)
    return backed;
  if (!arena_->wait_ready(std::min<std::uint64_t>(backed, arena_->slots() * Arena::slot_bytes),
                          timeout_ms) ||
      backed > tiers_->capacity() + arena_->slots() * Arena::slot_bytes / 2)
    return fail(Code::exhausted,
                "this node has no space for " + std::to_string(backed >> 20) +
                    " MiB of suspended memory (" + std::to_string(tiers_->capacity() >> 20) +
                    " MiB are free)",
                "stop suspended jobs, or give the node more space with --vault-arena, "
                "--sleep-memory or --sleep-disk");
  return backed;
}

// Copies the job's memory into the arena. If that fails, brings back what had already left.
Status Service::save(Job& job, MoveReport& report) {
  const std::int64_t start = steady_ns();
  const auto moved = move(job, true, {});
  if (moved && moved->copied_bytes >= rated_bytes)
    lower_->rated(LowerTiers::Rated::gpu, static_cast<double>(moved->copied_bytes),
                  seconds_since(start) - moved->waited_seconds);
  if (!moved) {
    const auto returned = move(job, false, {});
    if (returned)
      return pass(moved.error());
    set_phase(job, JobPhase::suspended);
    return pass(returned.error(), "suspending failed (" + moved.error().message +
                                      "), and so did undoing it; job " + job.spec.name +
                                      " stays suspended until it is resumed");
  }
  report.counts = *moved;
  const std::lock_guard guard(library_.lock);
  PieceStore& store = *library_.stores[job.tenant];
  // Frees pieces of earlier images that this image does not contain.
  Freed freed;
  store.evict(store.unreferred(), freed);
  library_.give(job.tenant, freed);
  return {};
}

namespace {

// Whether some of these processes have ended or said that they will, and others go on; a short wait
// for those that said so.
bool wait_for_endings(const std::vector<std::shared_ptr<ShimLink>>& links) {
  constexpr int patience_ms = 2000, look_ms = 5;
  bool ended = false, live = false;
  for (const auto& link : links) {
    const bool ends = link->ending() || link->closed();
    (ends ? ended : live) = true;
    for (int waited = 0; link->ending() && !link->closed() && waited < patience_ms;
         waited += look_ms)
      std::this_thread::sleep_for(std::chrono::milliseconds(look_ms));
  }
  return ended && live;
}

}  // namespace

Result<MoveReport> Service::suspend(const std::string& name, bool cold, int timeout_ms) {
  const auto job = find(name);
  if (!job)
    return fail(Code::not_found, "the GPU memory service has no job " + name);
  if (!job->spec.suspendable)
    return fail(Code::conflict, "job " + name + " was started without suspend support");
  if (!arena_ || !driver_)
    return fail(Code::unsupported,
                "this node cannot suspend jobs: its GPU memory service has no arena or no CUDA "
                "driver");
  const std::lock_guard operation(job->operation);
  constexpr int tries_max = 3;
  for (int tries = 1;; ++tries) {
    std::vector<std::shared_ptr<ShimLink>> links;
    {
      const std::lock_guard guard(job->lock);
      links = job->links;
    }
    auto done = suspend_once(*job, cold, timeout_ms);
    if (done || tries == tries_max || job->phase != JobPhase::running || !wait_for_endings(links))
      return done;
  }
}

Result<MoveReport> Service::suspend_once(Job& job, bool cold, int timeout_ms) {
  const std::int64_t start = steady_ns();
  std::vector<std::shared_ptr<ShimLink>> links;
  {
    const std::lock_guard guard(job.lock);
    if (job.phase != JobPhase::running)
      return fail(Code::conflict, "job " + job.spec.name + " is " + phase_name(job.phase));
    links = job.links;
  }
  drop_ended(job);
  const std::uint64_t backed = BILLOW_TRY(check_suspendable(job, timeout_ms));
  set_phase(job, JobPhase::suspending);
  tiers_->asleep(job.tenant);
  MoveReport report;
  const auto back_to_running = [&](Error error) -> Result<MoveReport> {
    tiers_->awake(job.tenant, false);
    attach(job);
    open(job);
    set_phase(job, JobPhase::running);
    return pass(std::move(error));
  };
  if (const Status closed = close_gates(job, links, timeout_ms, report); !closed)
    return back_to_running(closed.error());
  if (const Status undone = detach(job, links); !undone)
    return back_to_running(undone.error());
  if (const Status listed = list_chunks(job, links); !listed)
    return back_to_running(listed.error());
  report.quiesce_seconds = seconds_since(start);
  job.resident_bytes = static_cast<std::int64_t>(backed);
  if (const Status saved = save(job, report); !saved)
    return job.phase == JobPhase::suspended ? Result<MoveReport>(pass(saved.error()))
                                            : back_to_running(saved.error());
  const std::int64_t residue_start = steady_ns();
  if (cold)
    if (const Status done = checkpoint(job); !done)
      report.cold_error = done.error().message;
  report.residue_seconds = seconds_since(residue_start);
  drop_ended(job);
  const std::lock_guard guard(job.lock);
  job.phase = JobPhase::suspended;
  hold_newcomers(job, links);
  report.cold = job.checkpointed;
  report.seconds = seconds_since(start);
  return report;
}

namespace {

// Whether the driver's checkpoint keeps the job's programs working (measured with driver 580):
//  - The GPU can no longer leave a kernel of a restored process before it ends. If that kernel
//    waits for another process's kernel on the same GPU (NCCL), the driver ends both processes.
//  - Host memory of cuMemCreate is unmapped also for the CPU: a thread that touches it crashes.
Status check_checkpointable(const Job& job) {
  std::vector<int> processes(job.spec.devices.size());
  for (const auto& slot : job.usage->slots) {
    if (slot.features & BILLOW_USES_HOST_MAPPED)
      return fail(Code::unsupported,
                  "the job maps host memory of cuMemCreate, which its threads could not touch "
                  "after the driver's checkpoint");
    if (!slot.pid || !slot.contexts)
      continue;
    for (std::size_t place = 0; place < processes.size(); ++place)
      // A shim of an earlier version does not say which devices it uses.
      if ((!slot.context_devices || slot.context_devices >> place & 1) && ++processes[place] > 1)
        return fail(Code::unsupported,
                    "several processes of the job use one GPU, which could not switch between "
                    "their kernels after the driver's checkpoint");
  }
  return {};
}

}  // namespace

Status Service::checkpoint(Job& job) {
  std::vector<int> pids;
  {
    const std::lock_guard guard(job.lock);
    BILLOW_TRY_VOID(check_checkpointable(job));
    for (const auto& entry : job.images)
      if (!entry.first->closed())
        pids.push_back(entry.first->pid());
  }
  BILLOW_TRY_VOID(checkpoint_pids(pids));
  const std::lock_guard guard(job.lock);
  job.checkpointed = true;
  job.checkpointed_pids = std::move(pids);
  return {};
}

Status Service::checkpoint_pids(const std::vector<int>& pids) {
  if (!driver_ || !driver_->checkpoint_lock || !driver_->checkpoint_checkpoint)
    return fail(Code::unsupported,
                "this driver cannot checkpoint processes (570 or newer is needed)");
  std::vector<int> done;
  for (int pid : pids) {
    CUcheckpointLockArgs lock{};
    lock.timeoutMs = 10000;
    CUcheckpointArgs none{};
    CUresult r = driver_->checkpoint_lock(pid, &lock);
    if (r == CUDA_OK) {
      r = driver_->checkpoint_checkpoint(pid, &none);
      if (r != CUDA_OK)
        driver_->checkpoint_unlock(pid, &none);
    }
    if (r != CUDA_OK) {
      (void)restore_pids(done);
      return pass(cuda_error("the driver's checkpoint", r));
    }
    done.push_back(pid);
  }
  return {};
}

Status Service::restore_pids(const std::vector<int>& pids) {
  if (!driver_ || !driver_->checkpoint_restore)
    return fail(Code::unsupported,
                "this driver cannot checkpoint processes (570 or newer is needed)");
  for (int pid : pids) {
    CUcheckpointArgs none{};
    if (const CUresult r = driver_->checkpoint_restore(pid, &none); r != CUDA_OK)
      return pass(cuda_error("cuCheckpointProcessRestore", r));
    if (const CUresult r = driver_->checkpoint_unlock(pid, &none); r != CUDA_OK)
      return pass(cuda_error("cuCheckpointProcessUnlock", r));
  }
  return {};
}

}  // namespace billow::gpumem
