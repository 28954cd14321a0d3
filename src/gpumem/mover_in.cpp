// From the arena back to the device. See mover.h.
#include <cerrno>
#include <chrono>
#include <future>
#include <utility>

#include "gpumem/mover_parts.h"

namespace billow::gpumem {

// The batch's pieces are pinned in the arena.
Status Gpu::fill(Lane& lane, Batch& batch, Job& job, MoveCounts& counts) {
  std::vector<Run> runs;
  std::size_t n = 0;
  std::vector<std::uint32_t> slots;
  {
    const std::lock_guard guard(job.library->lock);
    const PieceStore& store = *job.library->stores[job.tenant];
    for (const PieceKey& key : batch.pinned)
      slots.push_back(store.slot(key));
  }
  std::size_t next = 0;
  for (std::size_t number : batch.chunks) {
    for (const Piece& piece : (*job.chunks)[number].pieces) {
      const PieceAddress at = batch.pieces[n++];
      counts.bytes += at.bytes;
      if (piece.zero) {
        counts.zero_bytes += at.bytes;
        GPUMEM_CUDA("cuMemsetD8Async", driver_->fill(at.address, 0, at.bytes, lane.copy));
      } else {
        counts.copied_bytes += at.bytes;
        const std::uint32_t slot = next < slots.size() ? slots[next++] : no_slot;
        if (slot == no_slot)
          return fail(Code::internal, "a piece of suspended memory is not in the arena");
        append_run(runs, at.address, at.bytes, slot);
      }
    }
  }
  counts.copies += runs.size();
  for (const Run& run : runs)
    GPUMEM_CUDA("cuMemcpyHtoDAsync", driver_->copy_in(run.address, job.library->arena->at(run.slot),
                                                      run.bytes, lane.copy));
  // The hashes follow on their own stream, so that the next batch's copies need not wait for them.
  GPUMEM_CUDA("cuEventRecord", driver_->event_record(batch.done, lane.copy));
  GPUMEM_CUDA("cuStreamWaitEvent", driver_->stream_wait(lane.hash, batch.done, 0));
  BILLOW_TRY_VOID(hash(lane, batch, lane.hash));
  GPUMEM_CUDA("cuEventRecord", driver_->event_record(batch.done, lane.hash));
  return {};
}

Status Gpu::finish_in(Lane& lane, Batch& batch, Job& job) {
  GPUMEM_CUDA("cuEventSynchronize", driver_->event_synchronize(batch.done));
  const billow_piece_hash* hashes = lane.hashes[batch.place];
  std::size_t n = 0;
  for (std::size_t number : batch.chunks) {
    for (const Piece& piece : (*job.chunks)[number].pieces) {
      const billow_piece_hash& h = hashes[n++];
      const bool same =
          piece.zero ? h.any == 0 : h.low == piece.key.low && h.high == piece.key.high;
      if (!same) {
        // If it came from a lower tier, a later try reads it there again.
        job.tiers->unpin(job.tenant, std::exchange(batch.pinned, {}));
        const std::lock_guard guard(job.library->lock);
        Freed freed;
        job.library->stores[job.tenant]->distrust(piece.key, freed);
        job.library->give(job.tenant, freed);
        return fail(
            Code::internal,
            "restored memory differs from what was saved (chunk " +
                std::to_string((*job.chunks)[number].id) + ")",
            "the job stays suspended and its image is kept; check this node's memory, disk and "
            "GPU");
      }
    }
  }
  close_batch(batch);
  job.tiers->unpin(job.tenant, std::exchange(batch.pinned, {}));
  // Restored pieces may stay in the arena for the next suspend until the space is needed.
  const std::lock_guard guard(job.library->lock);
  Freed freed;
  PieceStore& store = *job.library->stores[job.tenant];
  for (std::size_t number : batch.chunks) {
    (*job.chunks)[number].arriving = false;
    for (Piece& piece : (*job.chunks)[number].pieces) {
      if (piece.referred)
        store.unrefer(piece.key, freed);
      piece.referred = false;
    }
  }
  job.library->give(job.tenant, freed);
  return {};
}

// One move from the arena back to the device.
class Gpu::InMove {
 public:
  InMove(Gpu& gpu, Job& job)
      : gpu_(gpu), job_(job), lane_(*gpu.in_lane_), batches_(make_batches(job, true)) {}

  Result<MoveCounts> run() {
    if (const Status moved = move_all(); !moved) {
      abandon();
      return pass(moved.error());
    }
    return counts_;
  }

 private:
  Status move_all() {
    for (std::size_t i = 0; i < batches_.size(); i++) {
      if (!creating_)
        BILLOW_TRY_VOID(request(i));
      Answer answer = BILLOW_TRY(created());
      BILLOW_TRY_VOID(loaded());
      while (flying_.size() >= batches_in_flight)
        BILLOW_TRY_VOID(finish_first());
      flying_.push_back(std::move(batches_[i]));
      Batch& batch = flying_.back();
      BILLOW_TRY_VOID(gpu_.open_batch(lane_, batch, std::move(answer.descriptors), *job_.chunks));
      BILLOW_TRY_VOID(gpu_.fill(lane_, batch, job_, counts_));
      // The job allocates the next batch's memory while this one's copies run.
      if (i + 1 < batches_.size())
        BILLOW_TRY_VOID(request(i + 1));
    }
    while (!flying_.empty())
      BILLOW_TRY_VOID(finish_first());
    return {};
  }
  Status request(std::size_t i) {
    if (job_.may_create && !job_.may_create(batches_[i].bytes))
      return fail(Code::exhausted, "the GPU has too little free memory for the job",
                  "suspend or stop another job first");
    creating_ = BILLOW_TRY(job_.link->send(BILLOW_CREATE, 0, batches_[i].ids));
    creating_batch_ = i;
    batches_[i].pinned = keys_of(batches_[i], job_);
    loading_ = std::async(std::launch::async, [this, i] {
      return job_.tiers->raise(job_.tenant, batches_[i].pinned, job_.timeout_ms);
    });
    return {};
  }
  // Batches in flight hold slots that the load may need.
  Status loaded() {
    while (!flying_.empty() &&
           loading_.wait_for(std::chrono::seconds(0)) != std::future_status::ready)
      BILLOW_TRY_VOID(finish_first());
    return loading_.get();
  }
  Result<Answer> created() {
    Answer answer = BILLOW_TRY(job_.link->wait(std::exchange(creating_, 0), job_.timeout_ms));
    const Batch& batch = batches_[creating_batch_];
    for (std::size_t i = 0; i < answer.head.count && i < batch.chunks.size(); i++) {
      ChunkImage& chunk = (*job_.chunks)[batch.chunks[i]];
      chunk.out = false;
      chunk.arriving = true;
      if (job_.resident)
        job_.resident(static_cast<std::int64_t>(chunk.bytes));
    }
    // Without memory a later try may succeed; every other error is the driver's last word.
    if (answer.head.status && answer.head.status != ENOMEM)
      job_.link->broken = answer.head.status;
    if (answer.head.status || answer.descriptors.size() != batch.ids.size())
      return fail_errno("the job could not allocate its memory again",
                        answer.head.status ? answer.head.status : EPROTO);
    return answer;
  }
  Status finish_first() {
    BILLOW_TRY_VOID(gpu_.finish_in(lane_, flying_.front(), job_));
    flying_.pop_front();
    return {};
  }
  void abandon() {
    if (creating_)
      (void)created();
    if (loading_.valid())
      (void)loading_.get();
    for (Batch& batch : batches_)
      job_.tiers->unpin(job_.tenant, std::exchange(batch.pinned, {}));
    gpu_.driver_->stream_synchronize(lane_.copy);
    gpu_.driver_->stream_synchronize(lane_.hash);
    for (Batch& batch : flying_) {
      gpu_.close_batch(batch);
      job_.tiers->unpin(job_.tenant, std::exchange(batch.pinned, {}));
    }
  }

  Gpu& gpu_;
  Job& job_;
  Lane& lane_;
  std::vector<Batch> batches_;
  MoveCounts counts_;
  std::deque<Batch> flying_;
  std::future<Status> loading_;  // of the batch that CREATE was sent for
  std::uint32_t creating_ = 0;   // sequence of the CREATE request that was sent ahead
  std::size_t creating_batch_ = 0;
};

Result<MoveCounts> Gpu::move_in(Job job) {
  const std::lock_guard one_at_a_time(in_lock_);
  BILLOW_TRY_VOID(use());
  return InMove(*this, job).run();
}

}  // namespace billow::gpumem
