// Moves the chunks of one process on one GPU between the device and the arena.
//
// Out: for each batch, the shim exports its chunks as descriptors; the mover maps them, has the GPU
// hash every 2 MiB piece, copies only pieces the job's store does not have, and when a batch's
// copies are done tells the shim to give the memory back. In: the shim makes memory and exports it;
// the mover fills it, hashes it again and compares. Three batches are in flight, so that the link
// is busy while descriptors travel. One suspend and one resume can run on a GPU at the same time,
// each with its own streams: a swap.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "gpumem/arena.h"
#include "gpumem/driver.h"
#include "gpumem/session.h"
#include "gpumem/store.h"

namespace billow::gpumem {

struct ChunkImage {
  std::uint64_t id = 0, bytes = 0;
  std::vector<Piece> pieces;
  bool out = false;       // its memory is in the arena, not on the device
  bool arriving = false;  // on the device again, but not yet filled and verified
};

struct MoveCounts {
  std::uint64_t bytes = 0, copied_bytes = 0, zero_bytes = 0, known_bytes = 0;
};

// The arena, its stores and the lock over all of them. Room is made by forgetting pieces that
// nothing refers to, of any job.
struct Library {
  Arena* arena = nullptr;
  std::mutex lock;
  std::map<std::uint64_t, std::shared_ptr<PieceStore>> stores;  // by tenant
  // `count` slots for a tenant; waits for a concurrent resume to let go of some. Empty when there
  // is no room.
  std::vector<std::uint32_t> take(std::uint64_t tenant, std::size_t count, int timeout_ms);
  std::size_t available();  // free now, or free for the forgetting
};

class Gpu {
 public:
  static Result<std::unique_ptr<Gpu>> create(const Driver* driver, int ordinal);
  Status use();  // makes the GPU's context the calling thread's
  Result<std::uint64_t> free_bytes();
  const Driver& driver() const { return *driver_; }
  int ordinal() const { return ordinal_; }

  struct Job {
    Session* session;
    Library* library;
    std::uint64_t tenant;
    std::vector<ChunkImage>* chunks;
    std::function<bool(std::uint64_t bytes)>
        may_create;  // in: waits for room on the device; false calls it off
    std::function<void(std::int64_t bytes)> resident;  // told as memory leaves (-) and comes (+)
    // Out: while true, memory that was copied is kept and given back in one go. The driver clears
    // what is freed with the engines that copy, which costs a swap a tenth of its rate; so a job
    // that leaves keeps its memory until the one that comes needs it.
    std::function<bool()> may_hold;
    int timeout_ms = 60000;
  };
  Result<MoveCounts> move_out(Job job);
  Result<MoveCounts> move_in(Job job);

 private:
  struct Lane;
  struct Batch;
  struct Releasing;
  Gpu() = default;
  Result<std::unique_ptr<Lane>> make_lane();
  Status open_batch(Lane& lane, Batch& batch, std::vector<Fd> descriptors);
  void close_batch(Batch& batch);
  Status hash(Lane& lane, Batch& batch, CUstream stream);
  Status plan_and_copy(Lane& lane, Batch& batch, Job& job, MoveCounts& counts);
  Status fill(Lane& lane, Batch& batch, Job& job, MoveCounts& counts);
  Status release(Batch& batch, Job& job, std::deque<Releasing>& releasing);
  Status collect(std::deque<Releasing>& releasing, Job& job, bool all);
  Status finish_in(Lane& lane, Batch& batch, Job& job);

  const Driver* driver_ = nullptr;
  int ordinal_ = 0;
  CUcontext context_ = nullptr;
  CUfunction hash_function_ = nullptr;
  std::mutex out_lock_, in_lock_;
  std::unique_ptr<Lane> out_lane_, in_lane_;

 public:
  ~Gpu();
};

}  // namespace billow::gpumem
