// Moves the memory of suspended jobs between the tiers, in the background: down when slots of the
// arena run short, the job that was suspended first before the others; up again, for jobs that are
// resumed often, when the arena has space. A resume brings up what it needs itself, batch by batch.
//
// A piece leaves its slot only when its lower copy is complete, and leaves the file only when the
// job has its memory back and the GPU has verified it. So a full disk, a write error or a job that
// ends at any step loses nothing; a piece that cannot be read back fails the resume, and the job
// stays suspended.
#pragma once

#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "gpumem/library.h"
#include "gpumem/sleep_policy.h"

namespace billow::gpumem {

class Tiers {
 public:
  explicit Tiers(Library* library);
  ~Tiers();

  void asleep(std::uint64_t tenant);  // its suspend begins
  // It runs again; `counts`: because it was resumed.
  void awake(std::uint64_t tenant, bool counts);
  void forget(std::uint64_t tenant);

  // Pins the pieces and brings those without a slot into the arena. The caller unpins them, also
  // after a failure.
  Status raise(std::uint64_t tenant, const std::vector<PieceKey>& keys, int timeout_ms);
  void unpin(std::uint64_t tenant, const std::vector<PieceKey>& keys);

  PieceStore::Amounts amounts(std::uint64_t tenant);
  double wake_seconds(const PieceStore::Amounts& amounts) const;
  // Bytes that one more suspended job may have.
  std::uint64_t capacity();

 private:
  void work();
  std::size_t shortage();  // slots to free now
  std::size_t spill(std::size_t slots);
  std::size_t spill_from(std::uint64_t tenant, std::size_t count, bool from_memory);
  void make_memory(const std::vector<std::uint64_t>& order, std::uint64_t until);
  bool prefetch();
  struct Load;
  Status load(std::uint64_t tenant, PieceStore& store, std::vector<Load>& loads, int timeout_ms);
  void rate_load(const std::vector<Load>& loads, double seconds);
  Status await(PieceStore& store, const std::vector<PieceKey>& keys, int timeout_ms);
  std::vector<Sleeper> sleepers() const;
  std::shared_ptr<PieceStore> store_of(std::uint64_t tenant);

  Library& library_;
  mutable std::mutex lock_;
  std::map<std::uint64_t, Sleeper> asleep_,
      woken_;          // woken_: their resumes, until they sleep again
  bool stop_ = false;  // guarded by library_.lock
  std::thread thread_;
};

}  // namespace billow::gpumem
