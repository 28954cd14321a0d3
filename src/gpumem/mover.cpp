#include "gpumem/mover.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "gpumem/hash_ptx.h"
#include "gpumem/mover_parts.h"
#include "gpumem/steady.h"

namespace billow::gpumem {

namespace {

constexpr std::uint64_t batch_bytes = 512u << 20;
}  // namespace

struct Gpu::Releasing {
  std::uint32_t sequence;
  std::vector<std::size_t> chunks;
};

Gpu::~Gpu() = default;

// Groups the chunks that are (`out`) or are not in the arena so that a batch has about half a
// gibibyte, or an eighth of a small arena, and fits into one message.
std::vector<Gpu::Batch> Gpu::make_batches(const Job& job, bool out) {
  const std::vector<ChunkImage>& chunks = *job.chunks;
  const std::uint64_t most =
      std::min(batch_bytes, job.library->arena->slots() * Arena::slot_bytes / 8);
  std::vector<Batch> all;
  for (std::size_t i = 0; i < chunks.size(); i++) {
    if (chunks[i].out != out)
      continue;
    if (all.empty() || all.back().bytes + chunks[i].bytes > most ||
        all.back().chunks.size() == BILLOW_BATCH_MAX)
      all.emplace_back();
    Batch& batch = all.back();
    batch.chunks.push_back(i);
    batch.ids.push_back(chunks[i].id);
    batch.bytes += chunks[i].bytes;
  }
  return all;
}

Result<std::unique_ptr<Gpu>> Gpu::create(const Driver* driver, int ordinal) {
  std::unique_ptr<Gpu> gpu(new Gpu);
  gpu->driver_ = driver;
  gpu->ordinal_ = ordinal;
  GPUMEM_CUDA("cuDevicePrimaryCtxRetain", driver->primary_retain(&gpu->context_, ordinal));
  BILLOW_TRY_VOID(gpu->use());
  CUmodule module = nullptr;
  GPUMEM_CUDA("cuModuleLoadData", driver->module_load(&module, hash_ptx));
  GPUMEM_CUDA("cuModuleGetFunction",
              driver->module_function(&gpu->hash_function_, module, "billow_hash_pieces"));
  gpu->out_lane_ = BILLOW_TRY(gpu->make_lane());
  gpu->in_lane_ = BILLOW_TRY(gpu->make_lane());
  return gpu;
}

Status Gpu::use() {
  GPUMEM_CUDA("cuCtxSetCurrent", driver_->set_current(context_));
  return {};
}

Result<std::uint64_t> Gpu::free_bytes() {
  BILLOW_TRY_VOID(use());
  size_t free_now = 0, total = 0;
  GPUMEM_CUDA("cuMemGetInfo", driver_->mem_info(&free_now, &total));
  return free_now;
}

Result<std::unique_ptr<Gpu::Lane>> Gpu::make_lane() {
  auto lane = std::make_unique<Lane>();
  GPUMEM_CUDA("cuStreamCreate", driver_->stream_create(&lane->copy, 1));
  GPUMEM_CUDA("cuStreamCreate", driver_->stream_create(&lane->hash, 1));
  for (std::size_t i = 0; i < batches_in_flight; i++) {
    GPUMEM_CUDA("cuMemHostAlloc",
                driver_->host_alloc(reinterpret_cast<void**>(&lane->pieces[i]),
                                    pieces_max * sizeof(PieceAddress), HOST_DEVICEMAP));
    GPUMEM_CUDA("cuMemHostAlloc",
                driver_->host_alloc(reinterpret_cast<void**>(&lane->hashes[i]),
                                    pieces_max * sizeof(billow_piece_hash), HOST_DEVICEMAP));
    GPUMEM_CUDA("cuEventCreate", driver_->event_create(&lane->events[i], EVENT_DISABLE_TIMING));
  }
  return lane;
}

namespace {
void lay_out(std::vector<ChunkImage>& chunks,
             const std::vector<std::size_t>& numbers,
             std::uint64_t base,
             std::vector<PieceAddress>& pieces) {
  for (std::size_t number : numbers) {
    ChunkImage& chunk = chunks[number];
    const std::size_t n = (chunk.bytes + Arena::slot_bytes - 1) / Arena::slot_bytes;
    if (chunk.pieces.size() != n)
      chunk.pieces.assign(n, Piece{});
    for (std::size_t i = 0; i < n; i++)
      pieces.push_back(
          {base + i * Arena::slot_bytes,
           std::min<std::uint64_t>(Arena::slot_bytes, chunk.bytes - i * Arena::slot_bytes)});
    base += chunk.bytes;
  }
}
}  // namespace

// Maps the chunks behind the descriptors one after the other into a fresh range of addresses.
Status Gpu::open_batch(Lane& lane,
                       Batch& batch,
                       std::vector<Fd> descriptors,
                       std::vector<ChunkImage>& chunks) {
  batch.place = lane.next++ % batches_in_flight;
  batch.done = lane.events[batch.place];
  GPUMEM_CUDA("cuMemAddressReserve",
              driver_->address_reserve(&batch.base, batch.bytes, Arena::slot_bytes, 0, 0));
  for (Fd& fd : descriptors) {
    CUmemHandle handle = 0;
    GPUMEM_CUDA(
        "cuMemImportFromShareableHandle",
        driver_->import_fd(&handle, reinterpret_cast<void*>(static_cast<std::intptr_t>(fd.get())),
                           HANDLE_POSIX_FD));
    batch.handles.push_back(handle);
    fd.reset();
  }
  for (std::size_t c = 0; c < batch.chunks.size(); c++) {
    const std::uint64_t bytes = chunks[batch.chunks[c]].bytes;
    GPUMEM_CUDA("cuMemMap", driver_->map(batch.base + batch.mapped, bytes, 0, batch.handles[c], 0));
    batch.mapped += bytes;
  }
  const CUmemAccessDesc access{{LOCATION_DEVICE, ordinal_}, ACCESS_READ_WRITE};
  GPUMEM_CUDA("cuMemSetAccess", driver_->set_access(batch.base, batch.bytes, &access, 1));
  lay_out(chunks, batch.chunks, batch.base, batch.pieces);
  return {};
}

void Gpu::close_batch(Batch& batch) {
  if (batch.mapped)
    driver_->unmap(batch.base, batch.mapped);
  for (CUmemHandle handle : batch.handles)
    driver_->release(handle);
  if (batch.base)
    driver_->address_free(batch.base, batch.bytes);
  batch.mapped = 0;
  batch.handles.clear();
  batch.base = 0;
}

// The kernel reads the list from pinned host memory and writes the hashes there. As copies they
// would queue in a copy engine behind half a gibibyte of the other direction, so each batch of a
// swap would wait for a batch of the other job.
Status Gpu::hash(Lane& lane, Batch& batch, CUstream stream) {
  const std::size_t n = batch.pieces.size();
  std::memcpy(lane.pieces[batch.place], batch.pieces.data(), n * sizeof(PieceAddress));
  void* parameters[] = {&lane.pieces[batch.place], &lane.hashes[batch.place]};
  GPUMEM_CUDA("cuLaunchKernel",
              driver_->launch(hash_function_, static_cast<unsigned>(n), 1, 1, BILLOW_HASH_LANES, 1,
                              1, 0, stream, parameters, nullptr));
  return {};
}

void append_run(std::vector<Run>& runs,
                std::uint64_t address,
                std::uint64_t bytes,
                std::uint32_t slot) {
  if (!runs.empty()) {
    Run& last = runs.back();
    const bool follows = last.address + last.bytes == address &&
                         last.bytes % Arena::slot_bytes == 0 &&
                         last.slot + last.bytes / Arena::slot_bytes == slot &&
                         slot % (Arena::segment_bytes / Arena::slot_bytes) != 0;
    if (follows) {
      last.bytes += bytes;
      return;
    }
  }
  runs.push_back({address, bytes, slot});
}

Status Gpu::plan_and_copy(Lane& lane, Batch& batch, Job& job, MoveCounts& counts) {
  const billow_piece_hash* hashes = lane.hashes[batch.place];
  std::vector<Piece*> wanting;
  std::vector<PieceAddress> where;
  std::size_t n = 0;
  {
    const std::lock_guard guard(job.library->lock);
    PieceStore& store = *job.library->stores[job.tenant];
    for (std::size_t number : batch.chunks) {
      ChunkImage& chunk = (*job.chunks)[number];
      for (Piece& piece : chunk.pieces) {
        const billow_piece_hash& h = hashes[n];
        const PieceAddress at = batch.pieces[n++];
        piece =
            Piece{{h.low, h.high, static_cast<std::uint32_t>(at.bytes)}, h.any == 0, h.any != 0};
        counts.bytes += at.bytes;
        if (piece.zero) {
          counts.zero_bytes += at.bytes;
          continue;
        }
        if (store.refer(piece.key)) {
          counts.known_bytes += at.bytes;
          continue;
        }
        wanting.push_back(&piece);
        where.push_back(at);
      }
    }
  }
  const std::int64_t asked = steady_ns();
  const std::vector<std::uint32_t> slots =
      wanting.empty() ? std::vector<std::uint32_t>{}
                      : job.library->take(job.tenant, wanting.size(), job.timeout_ms);
  counts.waited_seconds += seconds_since(asked);
  if (slots.size() != wanting.size())
    return fail(Code::exhausted, "this node has no more space for suspended memory",
                "stop suspended jobs, or raise --vault-arena, --sleep-memory or --sleep-disk");
  std::vector<Run> runs;
  {
    const std::lock_guard guard(job.library->lock);
    PieceStore& store = *job.library->stores[job.tenant];
    std::size_t used = 0;
    Freed freed;
    for (std::size_t i = 0; i < wanting.size(); i++) {
      // If two new pieces of a batch are equal, the second uses the slot of the first.
      if (store.refer(wanting[i]->key)) {
        counts.known_bytes += where[i].bytes;
      } else {
        store.place(wanting[i]->key, slots[used]);
        // A shorter piece does not fill the slot; the rest must not hold another tenant's data.
        if (where[i].bytes < Arena::slot_bytes)
          std::memset(job.library->arena->at(slots[used]) + where[i].bytes, 0,
                      Arena::slot_bytes - where[i].bytes);
        append_run(runs, where[i].address, where[i].bytes, slots[used]);
        counts.copied_bytes += where[i].bytes;
        used++;
      }
      store.unrefer(wanting[i]->key, freed);
    }
    freed.slots.insert(freed.slots.end(), slots.begin() + static_cast<std::ptrdiff_t>(used),
                       slots.end());
    job.library->give(job.tenant, freed);
  }
  counts.copies += runs.size();
  for (const Run& run : runs)
    GPUMEM_CUDA("cuMemcpyDtoHAsync", driver_->copy_out(job.library->arena->at(run.slot),
                                                       run.address, run.bytes, lane.copy));
  GPUMEM_CUDA("cuEventRecord", driver_->event_record(batch.done, lane.copy));
  return {};
}

// Frees the memory of a copied batch, here and in the job. The job's answer is collected later, so
// that both unmap at the same time.
Status Gpu::release(Batch& batch, Job& job, std::deque<Releasing>& releasing) {
  releasing.push_back({BILLOW_TRY(job.link->send(BILLOW_RELEASE, 0, batch.ids)), batch.chunks});
  close_batch(batch);
  return {};
}

Status Gpu::collect(std::deque<Releasing>& releasing, Job& job, bool all) {
  while (!releasing.empty()) {
    Answer answer;
    if (!all && !job.link->poll(releasing.front().sequence, answer))
      return {};
    if (all)
      answer = BILLOW_TRY(job.link->wait(releasing.front().sequence, job.timeout_ms));
    for (std::size_t i = 0; i < answer.head.count && i < releasing.front().chunks.size(); i++) {
      ChunkImage& chunk = (*job.chunks)[releasing.front().chunks[i]];
      chunk.out = true;
      if (job.resident)
        job.resident(-static_cast<std::int64_t>(chunk.bytes));
    }
    releasing.pop_front();
    if (answer.head.status)
      return fail_errno("the job could not free its memory", answer.head.status);
  }
  return {};
}

// One move from the device to the arena.
class Gpu::OutMove {
 public:
  OutMove(Gpu& gpu, Job& job)
      : gpu_(gpu), job_(job), lane_(*gpu.out_lane_), batches_(make_batches(job, false)) {}

  Result<MoveCounts> run() {
    for (const Batch& batch : batches_)
      if (batch.bytes / Arena::slot_bytes > pieces_max)
        return fail(Code::unsupported, "the job has one chunk of more than 16 GiB",
                    "let the program allocate in smaller pieces");
    if (const Status moved = move_all(); !moved) {
      abandon();
      return pass(moved.error());
    }
    return counts_;
  }

 private:
  Status move_all() {
    for (std::size_t i = 0; i < batches_.size(); i++) {
      Answer answer = BILLOW_TRY(exported(i));
      // Only what has landed can move on to a lower tier.
      const std::size_t slots = batches_[i].bytes / Arena::slot_bytes + 1;
      while (flying_.size() >= batches_in_flight ||
             (!flying_.empty() && job_.library->available() < slots))
        BILLOW_TRY_VOID(land_first());
      if (!job_.may_hold || !job_.may_hold())
        BILLOW_TRY_VOID(release_copied());
      BILLOW_TRY_VOID(gpu_.collect(releasing_, job_, false));
      flying_.push_back(std::move(batches_[i]));
      Batch& batch = flying_.back();
      BILLOW_TRY_VOID(gpu_.open_batch(lane_, batch, std::move(answer.descriptors), *job_.chunks));
      BILLOW_TRY_VOID(gpu_.hash(lane_, batch, lane_.hash));
      GPUMEM_CUDA("cuStreamSynchronize", gpu_.driver_->stream_synchronize(lane_.hash));
      BILLOW_TRY_VOID(gpu_.plan_and_copy(lane_, batch, job_, counts_));
    }
    while (!flying_.empty())
      BILLOW_TRY_VOID(land_first());
    BILLOW_TRY_VOID(release_copied());
    return gpu_.collect(releasing_, job_, true);
  }
  // The descriptors of a batch. Requests those of the next batch too, so that the shim works ahead.
  Result<Answer> exported(std::size_t i) {
    if (!exporting_)
      exporting_ = BILLOW_TRY(job_.link->send(BILLOW_EXPORT, 0, batches_[i].ids));
    const std::uint32_t sequence = std::exchange(exporting_, 0);
    Answer answer = BILLOW_TRY(job_.link->wait(sequence, job_.timeout_ms));
    if (answer.head.status || answer.descriptors.size() != batches_[i].ids.size())
      return fail_errno("the job could not hand over its memory",
                        answer.head.status ? answer.head.status : EPROTO);
    if (i + 1 < batches_.size())
      exporting_ = BILLOW_TRY(job_.link->send(BILLOW_EXPORT, 0, batches_[i + 1].ids));
    return answer;
  }
  Status land_first() {
    GPUMEM_CUDA("cuEventSynchronize", gpu_.driver_->event_synchronize(flying_.front().done));
    {
      const std::lock_guard guard(job_.library->lock);
      PieceStore& store = *job_.library->stores[job_.tenant];
      for (const PieceKey& key : keys_of(flying_.front(), job_))
        store.filled(key);
    }
    copied_.push_back(std::move(flying_.front()));
    flying_.pop_front();
    return {};
  }
  Status release_copied() {
    for (; !copied_.empty(); copied_.pop_front())
      BILLOW_TRY_VOID(gpu_.release(copied_.front(), job_, releasing_));
    return {};
  }
  void abandon() {
    gpu_.driver_->stream_synchronize(lane_.copy);
    for (auto* open : {&flying_, &copied_})
      for (Batch& batch : *open)
        gpu_.close_batch(batch);
    if (exporting_)
      (void)job_.link->wait(exporting_, job_.timeout_ms);
    (void)gpu_.collect(releasing_, job_, true);  // the caller must know which chunks have left
  }

  Gpu& gpu_;
  Job& job_;
  Lane& lane_;
  std::vector<Batch> batches_;
  MoveCounts counts_;
  std::deque<Batch> flying_, copied_;
  std::deque<Releasing> releasing_;
  std::uint32_t exporting_ = 0;  // sequence of the EXPORT request that was sent ahead
};

Result<MoveCounts> Gpu::move_out(Job job) {
  const std::lock_guard one_at_a_time(out_lock_);
  BILLOW_TRY_VOID(use());
  return OutMove(*this, job).run();
}

// The batch's pieces, without those of zeros.
std::vector<PieceKey> Gpu::keys_of(const Batch& batch, const Job& job) {
  std::vector<PieceKey> out;
  for (std::size_t number : batch.chunks)
    for (const Piece& piece : (*job.chunks)[number].pieces)
      if (!piece.zero && piece.referred)
        out.push_back(piece.key);
  return out;
}

}  // namespace billow::gpumem
