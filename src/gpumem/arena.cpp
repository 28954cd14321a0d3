// Anonymous memory, with huge pages if the kernel has them: they make faulting and registering
// several times faster.
#include "gpumem/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

namespace billow::gpumem {

Result<std::unique_ptr<Arena>> Arena::create(Options options) {
  const std::uint64_t bytes = options.bytes / slot_bytes * slot_bytes;
  if (bytes == 0)
    return fail(Code::invalid, "the arena needs at least 2 MiB", "give --arena a size such as 64G");
  void* memory = mmap(nullptr, bytes + slot_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    return fail_errno("map the arena", errno);
  std::unique_ptr<Arena> arena(new Arena);
  arena->base_ = reinterpret_cast<char*>(
      (reinterpret_cast<std::uintptr_t>(memory) + slot_bytes - 1) / slot_bytes * slot_bytes);
  arena->bytes_ = bytes;
  arena->slot_count_ = bytes / slot_bytes;
  arena->state_.assign(arena->slot_count_, Slot::absent);
  arena->owner_.assign(arena->slot_count_, 0);
  madvise(arena->base_, bytes, MADV_HUGEPAGE);
  madvise(arena->base_, bytes,
          MADV_DONTDUMP);  // tenants' data must not end up in a core file
  madvise(arena->base_, bytes, MADV_DONTFORK);
  Arena* a = arena.get();
  arena->preparer_ = std::thread([a, options] { a->prepare(options); });
  arena->scrubber_ = std::thread([a] { a->scrub_loop(); });
  return arena;
}

Arena::~Arena() {
  {
    const std::lock_guard guard(lock_);
    stop_ = true;
  }
  changed_.notify_all();
  if (preparer_.joinable())
    preparer_.join();
  if (scrubber_.joinable())
    scrubber_.join();
  munmap(base_, bytes_);
}

void Arena::prepare(Options options) {
  for (std::uint64_t at = 0; at < bytes_; at += segment_bytes) {
    const std::uint64_t part = std::min(segment_bytes, bytes_ - at);
    const std::uint64_t stride = std::max<std::uint64_t>(
        slot_bytes, part / std::max(1u, options.threads) / slot_bytes * slot_bytes);
    std::vector<std::thread> threads;
    for (std::uint64_t from = 0; from < part; from += stride) {
      const std::uint64_t length = std::min(stride, part - from);
      threads.emplace_back([start = base_ + at + from, length] {
        if (madvise(start, length, MADV_POPULATE_WRITE) !=
            0)  // kernels before 5.14 cannot populate: touch every page instead
          for (std::uint64_t i = 0; i < length; i += 4096)
            *static_cast<volatile char*>(start + i) = 0;
      });
    }
    for (std::thread& t : threads)
      t.join();
    if (options.register_memory && !options.register_memory(base_ + at, part))
      return;
    const std::lock_guard guard(lock_);
    if (stop_)
      return;
    for (std::uint64_t slot = at / slot_bytes; slot < (at + part) / slot_bytes; slot++)
      state_[slot] = Slot::clean;
    free_count_ += part / slot_bytes;
    ready_bytes_ += part;
    changed_.notify_all();
  }
}

std::vector<std::uint32_t> Arena::take(std::uint64_t tenant, std::size_t count, Foreign how) {
  std::vector<std::uint32_t> out;
  const std::lock_guard guard(lock_);
  if (free_count_ < count)
    return out;
  out.reserve(count);
  std::vector<std::uint32_t> foreign;
  for (std::uint32_t slot = 0; slot < slot_count_ && out.size() < count; slot++) {
    if (state_[slot] == Slot::clean ||
        (state_[slot] == Slot::dirty && (owner_[slot] == tenant || how == Foreign::overwritten)))
      out.push_back(slot);
    else if (state_[slot] == Slot::dirty)
      foreign.push_back(slot);
  }
  // Only slots with another tenant's bytes are left: zero them now.
  for (std::uint32_t slot : foreign) {
    if (out.size() == count)
      break;
    std::memset(at(slot), 0, slot_bytes);
    out.push_back(slot);
  }
  std::sort(out.begin(), out.end());
  for (std::uint32_t slot : out) {
    if (state_[slot] == Slot::dirty)
      dirty_count_--;
    state_[slot] = Slot::used;
    owner_[slot] = tenant;
  }
  free_count_ -= out.size();
  return out;
}

void Arena::give(std::uint64_t tenant, const std::vector<std::uint32_t>& slots) {
  const std::lock_guard guard(lock_);
  for (std::uint32_t slot : slots) {
    if (slot >= slot_count_ || state_[slot] != Slot::used || owner_[slot] != tenant)
      continue;
    state_[slot] = Slot::dirty;
    dirty_count_++;
    free_count_++;
  }
  changed_.notify_all();
}

void Arena::scrub_tenant(std::uint64_t tenant) {
  const std::lock_guard guard(lock_);
  gone_.push_back(tenant);
  changed_.notify_all();
}

void Arena::scrub_loop() {
  std::unique_lock guard(lock_);
  while (!stop_) {
    if (gone_.empty()) {
      changed_.wait(guard);
      continue;
    }
    const std::uint64_t tenant = gone_.back();
    gone_.pop_back();
    for (std::uint32_t slot = 0; slot < slot_count_ && !stop_; slot++) {
      if (state_[slot] != Slot::dirty || owner_[slot] != tenant)
        continue;
      state_[slot] = Slot::used;  // out of reach while it is zeroed without the lock
      free_count_--;
      guard.unlock();
      std::memset(at(slot), 0, slot_bytes);
      guard.lock();
      state_[slot] = Slot::clean;
      owner_[slot] = 0;
      dirty_count_--;
      free_count_++;
    }
  }
}

std::size_t Arena::free_slots() const {
  const std::lock_guard guard(lock_);
  return free_count_;
}
std::size_t Arena::dirty_slots() const {
  const std::lock_guard guard(lock_);
  return dirty_count_;
}

bool Arena::wait_ready(std::uint64_t bytes, int timeout_ms) {
  std::unique_lock guard(lock_);
  return changed_.wait_for(guard, std::chrono::milliseconds(timeout_ms), [&] {
    return stop_ || ready_bytes_ >= bytes;
  }) && ready_bytes_ >= bytes;
}

Status Arena::reserve(std::uint64_t tenant, std::uint64_t bytes) {
  const std::lock_guard guard(lock_);
  std::uint64_t sum = 0;
  for (const auto& [who, how_much] : reserved_)
    if (who != tenant)
      sum += how_much;
  if (bytes > bytes_ - std::min(bytes_, sum))
    return fail(
        Code::exhausted,
        "the node's suspend arena has no space for " + std::to_string(bytes >> 20) + " MiB more (" +
            std::to_string(bytes_ >> 20) + " MiB, " + std::to_string(sum >> 20) + " MiB promised)",
        "start the GPU memory service with a larger --arena, or run this job without suspend");
  reserved_[tenant] = bytes;
  return {};
}
void Arena::unreserve(std::uint64_t tenant) {
  const std::lock_guard guard(lock_);
  reserved_.erase(tenant);
}
std::uint64_t Arena::reserved_bytes() const {
  const std::lock_guard guard(lock_);
  std::uint64_t sum = 0;
  for (const auto& entry : reserved_)
    sum += entry.second;
  return sum;
}

}  // namespace billow::gpumem
