// Moves the chunks of one process on one GPU between the device and the arena.
//
// Out: for each batch, the shim exports its chunks as descriptors. The mover maps them, lets the
// GPU hash every 2 MiB piece, copies only pieces that the job's store does not have, and tells the
// shim to free the memory once the copies are done. In: the shim allocates memory and exports it;
// the mover fills it, hashes it again and compares. Three batches are in flight, so that the bus
// stays busy while descriptors travel; pieces of the next batch that are in a lower tier are loaded
// meanwhile. One suspend and one resume can run on a GPU at the same
// time, each with its own streams: a swap.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "gpumem/driver.h"
#include "gpumem/library.h"
#include "gpumem/shim_link.h"
#include "gpumem/tiers.h"

namespace billow::gpumem {

inline constexpr std::uint64_t chunk_bytes_max = 16ull << 30;

struct ChunkImage {
  std::uint64_t id = 0, bytes = 0;
  std::vector<Piece> pieces;
  bool out = false;       // its memory is in the arena, not on the device
  bool arriving = false;  // on the device again, but not yet filled and verified
};

struct MoveCounts {
  std::uint64_t bytes = 0, copied_bytes = 0, zero_bytes = 0, known_bytes = 0;
  std::uint64_t copies = 0;
  double waited_seconds = 0;  // for space in the arena
};

class Gpu {
 public:
  static Result<std::unique_ptr<Gpu>> create(const Driver* driver, int ordinal);
  Status use();  // binds the GPU's context to the calling thread
  Result<std::uint64_t> free_bytes();
  const Driver& driver() const { return *driver_; }
  int ordinal() const { return ordinal_; }

  struct Job {
    ShimLink* link;
    Library* library;
    Tiers* tiers;
    std::uint64_t tenant;
    std::vector<ChunkImage>* chunks;
    // In: waits for free memory on the device; false: it gave up.
    std::function<bool(std::uint64_t bytes)> may_create;
    // Called when memory leaves (negative) and returns (positive).
    std::function<void(std::int64_t bytes)> resident;
    // Out: while true, memory that was copied is kept and freed later in one go. The driver clears
    // freed memory with the copy engines, which costs a swap a tenth of its rate; so a leaving job
    // keeps its memory until the arriving job needs it.
    std::function<bool()> may_hold;
    int timeout_ms = 60000;
  };
  Result<MoveCounts> move_out(Job job);  // device to arena
  Result<MoveCounts> move_in(Job job);   // arena to device, verified

 private:
  struct Lane;
  struct Batch;
  struct Releasing;
  class OutMove;
  class InMove;
  Gpu() = default;
  Result<std::unique_ptr<Lane>> make_lane();
  static std::vector<Batch> make_batches(const Job& job, bool out);
  Status open_batch(Lane& lane,
                    Batch& batch,
                    std::vector<Fd> descriptors,
                    std::vector<ChunkImage>& chunks);
  void close_batch(Batch& batch);
  Status hash(Lane& lane, Batch& batch, CUstream stream);
  Status plan_and_copy(Lane& lane, Batch& batch, Job& job, MoveCounts& counts);
  Status fill(Lane& lane, Batch& batch, Job& job, MoveCounts& counts);
  Status release(Batch& batch, Job& job, std::deque<Releasing>& releasing);
  Status collect(std::deque<Releasing>& releasing, Job& job, bool all);
  Status finish_in(Lane& lane, Batch& batch, Job& job);
  static std::vector<PieceKey> keys_of(const Batch& batch, const Job& job);

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
