// What mover.cpp (out) and mover_in.cpp share.
#pragma once

#include <cstdint>
#include <vector>

#include "gpumem/mover.h"

namespace billow::gpumem {

inline constexpr std::size_t batches_in_flight = 3;
// Per batch: more than any chunk the shim makes.
inline constexpr std::size_t pieces_max = chunk_bytes_max / Arena::slot_bytes;

struct PieceAddress {
  std::uint64_t address, bytes;
};

struct Gpu::Batch {
  std::vector<std::size_t> chunks;  // indices into the job's list
  std::vector<CUmemHandle> handles;
  CUdeviceptr base = 0;
  std::uint64_t bytes = 0;
  std::uint64_t mapped = 0;
  std::size_t place = 0;  // index of the lane's buffers
  std::vector<PieceAddress> pieces;
  CUevent done = nullptr;
  std::vector<std::uint64_t> ids;
  std::vector<PieceKey> pinned;  // in: held in the arena until the batch is done
};

// The streams and buffers of one direction.
struct Gpu::Lane {
  CUstream copy = nullptr, hash = nullptr;
  PieceAddress* pieces[batches_in_flight] = {};
  billow_piece_hash* hashes[batches_in_flight] = {};
  CUevent events[batches_in_flight] = {};
  std::size_t next = 0;
};

// Joins adjacent pieces in adjacent slots into one copy, but never across segments: each segment
// was registered with the driver separately, and a copy must stay within one registration.
struct Run {
  std::uint64_t address, bytes;
  std::uint32_t slot;
};
void append_run(std::vector<Run>& runs,
                std::uint64_t address,
                std::uint64_t bytes,
                std::uint32_t slot);

}  // namespace billow::gpumem
