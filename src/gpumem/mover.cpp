// See mover.h.
#include "gpumem/mover.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <thread>
#include <utility>

#include "gpumem/hash_ptx.h"

namespace billow::gpumem {

namespace {
constexpr std::uint64_t batch_bytes = 512u << 20;
constexpr std::size_t batches_in_flight = 3;
constexpr std::size_t pieces_max =
    8192;  // in one batch: 16 GiB, more than any chunk we make ourselves
struct PieceAddress {
  std::uint64_t address, bytes;
};

// Groups chunk numbers so that a batch is about half a gibibyte and fits one message.
std::vector<std::vector<std::size_t>> batches_of(const std::vector<ChunkImage>& chunks, bool out) {
  std::vector<std::vector<std::size_t>> all;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < chunks.size(); i++) {
    if (chunks[i].out != out)
      continue;
    if (all.empty() || bytes + chunks[i].bytes > batch_bytes ||
        all.back().size() == BILLOW_BATCH_MAX) {
      all.emplace_back();
      bytes = 0;
    }
    all.back().push_back(i);
    bytes += chunks[i].bytes;
  }
  return all;
}
}  // namespace

std::vector<std::uint32_t> Library::take(std::uint64_t tenant, std::size_t count, int timeout_ms) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  for (;;) {
    std::vector<std::uint32_t> slots = arena->take(tenant, count, Arena::Foreign::overwritten);
    if (slots.size() == count)
      return slots;
    bool made_room = false;
    {
      const std::lock_guard guard(lock);
      const std::size_t free_now = arena->free_slots();
      for (auto& [who, store] : stores) {
        if (free_now >= count)
          break;
        const auto evicted = store->evict(count - free_now);
        made_room |= !evicted.empty();
        arena->give(who, evicted);
      }
    }
    if (made_room)
      continue;
    if (std::chrono::steady_clock::now() > deadline)
      return {};
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

std::size_t Library::available() {
  const std::lock_guard guard(lock);
  std::size_t n = arena->free_slots();
  for (const auto& entry : stores)
    n += entry.second->unreferred();
  return n;
}

struct Gpu::Releasing {
  std::uint32_t sequence;
  std::vector<std::size_t> chunks;
};

struct Gpu::Batch {
  std::vector<std::size_t> chunks;  // numbers in the job's list
  std::vector<CUmemHandle> handles;
  CUdeviceptr base = 0;
  std::uint64_t bytes = 0;
  std::uint64_t mapped = 0;
  std::size_t place = 0;  // which of the lane's buffers
  std::vector<PieceAddress> pieces;
  CUevent done = nullptr;
  std::vector<std::uint64_t> ids;
};

// Streams and buffers of one direction.
struct Gpu::Lane {
  CUstream copy = nullptr, hash = nullptr;
  PieceAddress* pieces[batches_in_flight] = {};
  billow_piece_hash* hashes[batches_in_flight] = {};
  CUevent events[batches_in_flight] = {};
  std::size_t next = 0;
};

Gpu::~Gpu() = default;

Result<std::unique_ptr<Gpu>> Gpu::create(const Driver* driver, int ordinal) {
  std::unique_ptr<Gpu> gpu(new Gpu);
  gpu->driver_ = driver;
  gpu->ordinal_ = ordinal;
  VAULT_CUDA("cuDevicePrimaryCtxRetain", driver->primary_retain(&gpu->context_, ordinal));
  BILLOW_TRY_VOID(gpu->use());
  CUmodule module = nullptr;
  VAULT_CUDA("cuModuleLoadData", driver->module_load(&module, hash_ptx));
  VAULT_CUDA("cuModuleGetFunction",
             driver->module_function(&gpu->hash_function_, module, "billow_hash_pieces"));
  gpu->out_lane_ = BILLOW_TRY(gpu->make_lane());
  gpu->in_lane_ = BILLOW_TRY(gpu->make_lane());
  return gpu;
}

Status Gpu::use() {
  VAULT_CUDA("cuCtxSetCurrent", driver_->set_current(context_));
  return {};
}

Result<std::uint64_t> Gpu::free_bytes() {
  BILLOW_TRY_VOID(use());
  size_t free_now = 0, total = 0;
  VAULT_CUDA("cuMemGetInfo", driver_->mem_info(&free_now, &total));
  return free_now;
}

Result<std::unique_ptr<Gpu::Lane>> Gpu::make_lane() {
  auto lane = std::make_unique<Lane>();
  VAULT_CUDA("cuStreamCreate", driver_->stream_create(&lane->copy, 1));
  VAULT_CUDA("cuStreamCreate", driver_->stream_create(&lane->hash, 1));
  for (std::size_t i = 0; i < batches_in_flight; i++) {
    VAULT_CUDA("cuMemHostAlloc",
               driver_->host_alloc(reinterpret_cast<void**>(&lane->pieces[i]),
                                   pieces_max * sizeof(PieceAddress), HOST_DEVICEMAP));
    VAULT_CUDA("cuMemHostAlloc",
               driver_->host_alloc(reinterpret_cast<void**>(&lane->hashes[i]),
                                   pieces_max * sizeof(billow_piece_hash), HOST_DEVICEMAP));
    VAULT_CUDA("cuEventCreate", driver_->event_create(&lane->events[i], EVENT_DISABLE_TIMING));
  }
  return lane;
}

// Maps the descriptors one after the other into a fresh range of addresses.
Status Gpu::open_batch(Lane& lane, Batch& batch, std::vector<Fd> descriptors) {
  batch.place = lane.next++ % batches_in_flight;
  batch.done = lane.events[batch.place];
  VAULT_CUDA("cuMemAddressReserve",
             driver_->address_reserve(&batch.base, batch.bytes, Arena::slot_bytes, 0, 0));
  for (Fd& fd : descriptors) {
    CUmemHandle handle = 0;
    VAULT_CUDA(
        "cuMemImportFromShareableHandle",
        driver_->import_fd(&handle, reinterpret_cast<void*>(static_cast<std::intptr_t>(fd.get())),
                           HANDLE_POSIX_FD));
    batch.handles.push_back(handle);
    fd.reset();
  }
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

// The kernel reads the list and writes the hashes in pinned host memory itself: as copies they
// would stand in a copy engine's queue behind the half gibibytes of the other direction, and each
// batch of a swap would wait for one of the other job's.
Status Gpu::hash(Lane& lane, Batch& batch, CUstream stream) {
  const std::size_t n = batch.pieces.size();
  std::memcpy(lane.pieces[batch.place], batch.pieces.data(), n * sizeof(PieceAddress));
  void* parameters[] = {&lane.pieces[batch.place], &lane.hashes[batch.place]};
  VAULT_CUDA("cuLaunchKernel",
             driver_->launch(hash_function_, static_cast<unsigned>(n), 1, 1, BILLOW_HASH_LANES, 1,
                             1, 0, stream, parameters, nullptr));
  return {};
}

namespace {
// Runs of neighbouring pieces in neighbouring slots become one copy, but never across segments:
// each was registered with the driver on its own, and a copy must stay within one registration.
struct Run {
  std::uint64_t address, bytes;
  std::uint32_t slot;
};
void append(std::vector<Run>& runs,
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
}  // namespace

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
        piece = Piece{
            {h.low, h.high, static_cast<std::uint32_t>(at.bytes)}, no_slot, h.any == 0, h.any != 0};
        counts.bytes += at.bytes;
        if (piece.zero) {
          counts.zero_bytes += at.bytes;
          continue;
        }
        const bool first = (piece.slot = store.refer(piece.key)) == no_slot;
        if (!first) {
          counts.known_bytes += at.bytes;
          continue;
        }
        wanting.push_back(&piece);
        where.push_back(at);
      }
    }
  }
  const std::vector<std::uint32_t> slots =
      wanting.empty() ? std::vector<std::uint32_t>{}
                      : job.library->take(job.tenant, wanting.size(), job.timeout_ms);
  if (slots.size() != wanting.size())
    return fail(Code::exhausted, "the suspend arena is full",
                "free or remove suspended jobs, or start the vault with a larger arena");
  std::vector<Run> runs;
  {
    const std::lock_guard guard(job.library->lock);
    PieceStore& store = *job.library->stores[job.tenant];
    std::size_t used = 0;
    for (std::size_t i = 0; i < wanting.size(); i++) {
      // Of two equal new pieces in one batch the second finds the first's place.
      if (const std::uint32_t known = store.refer(wanting[i]->key); known != no_slot) {
        wanting[i]->slot = known;
        counts.known_bytes += where[i].bytes;
      } else {
        store.place(wanting[i]->key, slots[used]);
        wanting[i]->slot = slots[used];
        // The copy fills the slot; what a shorter piece leaves of it must not be somebody else's.
        if (where[i].bytes < Arena::slot_bytes)
          std::memset(job.library->arena->at(slots[used]) + where[i].bytes, 0,
                      Arena::slot_bytes - where[i].bytes);
        append(runs, where[i].address, where[i].bytes, slots[used]);
        counts.copied_bytes += where[i].bytes;
        used++;
      }
      store.unrefer(wanting[i]->key);
    }
    job.library->arena->give(job.tenant,
                             {slots.begin() + static_cast<std::ptrdiff_t>(used), slots.end()});
  }
  for (const Run& run : runs)
    VAULT_CUDA("cuMemcpyDtoHAsync", driver_->copy_out(job.library->arena->at(run.slot), run.address,
                                                      run.bytes, lane.copy));
  VAULT_CUDA("cuEventRecord", driver_->event_record(batch.done, lane.copy));
  return {};
}

// A batch that was copied gives its memory back, here and in the job. The job's answer is collected
// later, so that its unmapping and ours go on side by side.
Status Gpu::release(Batch& batch, Job& job, std::deque<Releasing>& releasing) {
  releasing.push_back({BILLOW_TRY(job.session->send(BILLOW_RELEASE, 0, batch.ids)), batch.chunks});
  close_batch(batch);
  return {};
}

Status Gpu::collect(std::deque<Releasing>& releasing, Job& job, bool all) {
  while (!releasing.empty()) {
    Answer answer;
    if (!all && !job.session->poll(releasing.front().sequence, answer))
      return {};
    if (all)
      answer = BILLOW_TRY(job.session->wait(releasing.front().sequence, job.timeout_ms));
    for (std::size_t i = 0; i < answer.head.count && i < releasing.front().chunks.size(); i++) {
      ChunkImage& chunk = (*job.chunks)[releasing.front().chunks[i]];
      chunk.out = true;
      if (job.resident)
        job.resident(-static_cast<std::int64_t>(chunk.bytes));
    }
    releasing.pop_front();
    if (answer.head.status)
      return fail_errno("the job could not give its memory back", answer.head.status);
  }
  return {};
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

Result<MoveCounts> Gpu::move_out(Job job) {
  const std::lock_guard one_at_a_time(out_lock_);
  BILLOW_TRY_VOID(use());
  Lane& lane = *out_lane_;
  MoveCounts counts;
  std::deque<Batch> flying, copied;
  std::deque<Releasing> releasing;
  const CUmemAccessDesc access{{LOCATION_DEVICE, ordinal_}, ACCESS_READ_WRITE};
  std::vector<Batch> batches;
  for (const auto& numbers : batches_of(*job.chunks, false)) {
    Batch& batch = batches.emplace_back();
    batch.chunks = numbers;
    for (std::size_t number : numbers) {
      batch.ids.push_back((*job.chunks)[number].id);
      batch.bytes += (*job.chunks)[number].bytes;
    }
    if (batch.bytes / Arena::slot_bytes > pieces_max)
      return fail(Code::unsupported, "the job has one chunk of more than 16 GiB",
                  "let the program allocate in smaller pieces");
  }
  std::uint32_t exporting = 0;  // the EXPORT that was asked one batch ahead
  const auto land_first = [&]() -> Status {
    VAULT_CUDA("cuEventSynchronize", driver_->event_synchronize(flying.front().done));
    copied.push_back(std::move(flying.front()));
    flying.pop_front();
    return {};
  };
  const auto release_copied = [&]() -> Status {
    for (; !copied.empty(); copied.pop_front())
      BILLOW_TRY_VOID(release(copied.front(), job, releasing));
    return {};
  };
  const auto run = [&]() -> Status {
    for (std::size_t i = 0; i < batches.size(); i++) {
      if (!exporting)
        exporting = BILLOW_TRY(job.session->send(BILLOW_EXPORT, 0, batches[i].ids));
      const std::uint32_t sequence = std::exchange(exporting, 0);
      Answer answer = BILLOW_TRY(job.session->wait(sequence, job.timeout_ms));
      if (answer.head.status || answer.descriptors.size() != batches[i].ids.size())
        return fail_errno("the job could not hand over its memory",
                          answer.head.status ? answer.head.status : EPROTO);
      if (i + 1 < batches.size())
        exporting = BILLOW_TRY(job.session->send(BILLOW_EXPORT, 0, batches[i + 1].ids));
      while (flying.size() >= batches_in_flight)
        BILLOW_TRY_VOID(land_first());
      if (!job.may_hold || !job.may_hold())
        BILLOW_TRY_VOID(release_copied());
      BILLOW_TRY_VOID(collect(releasing, job, false));
      flying.push_back(std::move(batches[i]));
      Batch& b = flying.back();
      BILLOW_TRY_VOID(open_batch(lane, b, std::move(answer.descriptors)));
      for (std::size_t c = 0; c < b.chunks.size(); c++) {
        const std::uint64_t bytes = (*job.chunks)[b.chunks[c]].bytes;
        VAULT_CUDA("cuMemMap", driver_->map(b.base + b.mapped, bytes, 0, b.handles[c], 0));
        b.mapped += bytes;
      }
      VAULT_CUDA("cuMemSetAccess", driver_->set_access(b.base, b.bytes, &access, 1));
      lay_out(*job.chunks, b.chunks, b.base, b.pieces);
      BILLOW_TRY_VOID(hash(lane, b, lane.hash));
      VAULT_CUDA("cuStreamSynchronize", driver_->stream_synchronize(lane.hash));
      BILLOW_TRY_VOID(plan_and_copy(lane, b, job, counts));
    }
    while (!flying.empty())
      BILLOW_TRY_VOID(land_first());
    BILLOW_TRY_VOID(release_copied());
    return collect(releasing, job, true);
  };
  const Status status = run();
  if (!status) {
    driver_->stream_synchronize(lane.copy);
    for (auto* batches_open : {&flying, &copied})
      for (Batch& batch : *batches_open)
        close_batch(batch);
    if (exporting)
      (void)job.session->wait(exporting, job.timeout_ms);
    (void)collect(releasing, job, true);  // what left must be known to have left
    return pass(status.error());
  }
  return counts;
}

Status Gpu::fill(Lane& lane, Batch& batch, Job& job, MoveCounts& counts) {
  std::vector<Run> runs;
  std::size_t n = 0;
  for (std::size_t number : batch.chunks) {
    for (const Piece& piece : (*job.chunks)[number].pieces) {
      const PieceAddress at = batch.pieces[n++];
      counts.bytes += at.bytes;
      if (piece.zero) {
        counts.zero_bytes += at.bytes;
        VAULT_CUDA("cuMemsetD8Async", driver_->fill(at.address, 0, at.bytes, lane.copy));
      } else {
        counts.copied_bytes += at.bytes;
        append(runs, at.address, at.bytes, piece.slot);
      }
    }
  }
  for (const Run& run : runs)
    VAULT_CUDA("cuMemcpyHtoDAsync", driver_->copy_in(run.address, job.library->arena->at(run.slot),
                                                     run.bytes, lane.copy));
  // The hashes follow on their own stream, so that the next batch's copies need not wait for them.
  VAULT_CUDA("cuEventRecord", driver_->event_record(batch.done, lane.copy));
  VAULT_CUDA("cuStreamWaitEvent", driver_->stream_wait(lane.hash, batch.done, 0));
  BILLOW_TRY_VOID(hash(lane, batch, lane.hash));
  VAULT_CUDA("cuEventRecord", driver_->event_record(batch.done, lane.hash));
  return {};
}

Status Gpu::finish_in(Lane& lane, Batch& batch, Job& job) {
  VAULT_CUDA("cuEventSynchronize", driver_->event_synchronize(batch.done));
  const billow_piece_hash* hashes = lane.hashes[batch.place];
  std::size_t n = 0;
  for (std::size_t number : batch.chunks) {
    for (const Piece& piece : (*job.chunks)[number].pieces) {
      const billow_piece_hash& h = hashes[n++];
      const bool same =
          piece.zero ? h.any == 0 : h.low == piece.key.low && h.high == piece.key.high;
      if (!same)
        return fail(
            Code::internal,
            "restored memory differs from what was saved (chunk " +
                std::to_string((*job.chunks)[number].id) + ")",
            "the job stays suspended and its image is kept; check this node's memory and GPU");
    }
  }
  close_batch(batch);
  // What is back on the device need not stay in the arena: it is kept for the next suspend only as
  // long as nobody needs the room.
  const std::lock_guard guard(job.library->lock);
  PieceStore& store = *job.library->stores[job.tenant];
  for (std::size_t number : batch.chunks) {
    (*job.chunks)[number].arriving = false;
    for (Piece& piece : (*job.chunks)[number].pieces) {
      if (piece.referred)
        store.unrefer(piece.key);
      piece.referred = false;
    }
  }
  return {};
}

Result<MoveCounts> Gpu::move_in(Job job) {
  const std::lock_guard one_at_a_time(in_lock_);
  BILLOW_TRY_VOID(use());
  Lane& lane = *in_lane_;
  MoveCounts counts;
  std::deque<Batch> flying;
  const CUmemAccessDesc access{{LOCATION_DEVICE, ordinal_}, ACCESS_READ_WRITE};
  std::vector<Batch> batches;
  for (const auto& numbers : batches_of(*job.chunks, true)) {
    Batch& batch = batches.emplace_back();
    batch.chunks = numbers;
    for (std::size_t number : numbers) {
      batch.ids.push_back((*job.chunks)[number].id);
      batch.bytes += (*job.chunks)[number].bytes;
    }
  }
  std::uint32_t creating = 0;  // the CREATE that was asked one batch ahead
  std::size_t creating_batch = 0;
  const auto ask = [&](std::size_t i) -> Status {
    if (job.may_create && !job.may_create(batches[i].bytes))
      return fail(Code::exhausted, "the GPU has no room for the job's memory",
                  "suspend or stop another job first");
    creating = BILLOW_TRY(job.session->send(BILLOW_CREATE, 0, batches[i].ids));
    creating_batch = i;
    return {};
  };
  const auto created = [&]() -> Result<Answer> {
    Answer answer = BILLOW_TRY(job.session->wait(std::exchange(creating, 0), job.timeout_ms));
    const Batch& batch = batches[creating_batch];
    for (std::size_t i = 0; i < answer.head.count && i < batch.chunks.size(); i++) {
      ChunkImage& chunk = (*job.chunks)[batch.chunks[i]];
      chunk.out = false;
      chunk.arriving = true;
      if (job.resident)
        job.resident(static_cast<std::int64_t>(chunk.bytes));
    }
    if (answer.head.status || answer.descriptors.size() != batch.ids.size())
      return fail_errno("the job could not make its memory again",
                        answer.head.status ? answer.head.status : EPROTO);
    return answer;
  };
  const auto run = [&]() -> Status {
    for (std::size_t i = 0; i < batches.size(); i++) {
      if (!creating)
        BILLOW_TRY_VOID(ask(i));
      Answer answer = BILLOW_TRY(created());
      while (flying.size() >= batches_in_flight) {
        BILLOW_TRY_VOID(finish_in(lane, flying.front(), job));
        flying.pop_front();
      }
      flying.push_back(batches[i]);
      Batch& b = flying.back();
      BILLOW_TRY_VOID(open_batch(lane, b, std::move(answer.descriptors)));
      for (std::size_t c = 0; c < b.chunks.size(); c++) {
        const std::uint64_t bytes = (*job.chunks)[b.chunks[c]].bytes;
        VAULT_CUDA("cuMemMap", driver_->map(b.base + b.mapped, bytes, 0, b.handles[c], 0));
        b.mapped += bytes;
      }
      VAULT_CUDA("cuMemSetAccess", driver_->set_access(b.base, b.bytes, &access, 1));
      lay_out(*job.chunks, b.chunks, b.base, b.pieces);
      BILLOW_TRY_VOID(fill(lane, b, job, counts));
      // The job makes the next batch's memory while this one's copies run.
      if (i + 1 < batches.size())
        BILLOW_TRY_VOID(ask(i + 1));
    }
    while (!flying.empty()) {
      BILLOW_TRY_VOID(finish_in(lane, flying.front(), job));
      flying.pop_front();
    }
    return {};
  };
  const Status status = run();
  if (!status) {
    if (creating)
      (void)created();
    driver_->stream_synchronize(lane.copy);
    driver_->stream_synchronize(lane.hash);
    for (Batch& batch : flying)
      close_batch(batch);
    return pass(status.error());
  }
  return counts;
}

}  // namespace billow::gpumem
