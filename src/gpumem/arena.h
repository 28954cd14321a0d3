// The node's arena: host memory in 2 MiB slots, allocated once, then pre-faulted and registered
// with the driver in the background. Jobs never map it. A slot that held one tenant's bytes is
// zeroed before another tenant gets it; the same tenant may get its own slot back unchanged. Space
// can be reserved ahead, so that a promised suspend always fits.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/result.h"

namespace billow::gpumem {

class Arena {
 public:
  static constexpr std::uint64_t slot_bytes = 2u << 20;
  static constexpr std::uint64_t segment_bytes = 1ull << 30;  // faulted and registered at a time
  struct Options {
    std::uint64_t bytes = 0;
    unsigned threads = 8;
    // Registers memory with the driver; called on any thread. False: the segment stays unused.
    std::function<bool(void*, std::uint64_t)> register_memory;
  };
  static Result<std::unique_ptr<Arena>> create(Options options);
  ~Arena();
  Arena(const Arena&) = delete;

  char* at(std::uint32_t slot) const { return base_ + slot * slot_bytes; }
  // Another tenant's bytes are zeroed before a slot is handed over, unless the taker overwrites the
  // whole slot before anything reads it. A suspend does, and zeroing 30 GiB first would cost it
  // three seconds.
  enum class Foreign { zeroed, overwritten };
  // `count` slots in ascending order, or none. Never waits.
  std::vector<std::uint32_t> take(std::uint64_t tenant,
                                  std::size_t count,
                                  Foreign foreign = Foreign::zeroed);
  void give(std::uint64_t tenant, const std::vector<std::uint32_t>& slots);
  // The tenant will not return: its slots are zeroed in the background.
  void scrub_tenant(std::uint64_t tenant);

  std::size_t slots() const { return slot_count_; }
  std::size_t free_slots() const;
  std::size_t dirty_slots() const;
  std::uint64_t ready_bytes() const { return ready_bytes_; }
  bool wait_ready(std::uint64_t bytes, int timeout_ms);

  // Admission: space reserved for jobs, in bytes.
  Status reserve(std::uint64_t tenant, std::uint64_t bytes);
  void unreserve(std::uint64_t tenant);
  std::uint64_t reserved_bytes() const;

 private:
  Arena() = default;
  void prepare(Options options);
  void scrub_loop();

  char* base_ = nullptr;
  std::uint64_t bytes_ = 0;
  std::size_t slot_count_ = 0;
  std::atomic<std::uint64_t> ready_bytes_{0};
  mutable std::mutex lock_;
  std::condition_variable changed_;
  // absent: not registered yet. dirty: free, but still holds its owner's bytes.
  enum class Slot : std::uint8_t { absent, clean, dirty, used };
  std::vector<Slot> state_;
  std::vector<std::uint64_t> owner_;
  std::size_t free_count_ = 0, dirty_count_ = 0;
  std::map<std::uint64_t, std::uint64_t> reserved_;
  std::vector<std::uint64_t> gone_;  // tenants whose slots wait for the scrubber
  bool stop_ = false;
  std::thread preparer_, scrubber_;
};

}  // namespace billow::gpumem
