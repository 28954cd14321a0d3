// Decisions about the memory of suspended jobs. Pure: rates and amounts come in.
//
// The tiers, from fast to slow: pinned memory (the arena), pageable memory, a file. The job that
// was suspended first moves down first. Jobs that were resumed before are expected to be resumed
// again, most frequent first: these move up again when the arena has free space.
#pragma once

#include <cstdint>
#include <vector>

namespace billow::gpumem {

// Bytes per second, with all threads together; 0: not measured. Of pieces as the job sees them,
// except for the disk, which counts what it stores.
struct Rates {
  double gpu = 0;               // between the arena and the GPU
  double memory = 0;            // between the arena and pageable memory
  double write = 0, read = 0;   // disk
  double pack = 0, unpack = 0;  // compression
};

struct Asleep {
  std::uint64_t arena = 0, memory = 0, memory_stored = 0, file = 0, file_stored = 0;
};
// How long the copies of a resume take. Loading and copying overlap.
double wake_seconds(const Rates& rates, const Asleep& asleep);

// Whether a piece that shrinks to `ratio` of its size is read faster from disk if it is compressed.
bool packs_for_disk(const Rates& rates, double ratio);
// Whether it is compressed in memory: it saves enough, and reading it is still much faster than
// from disk, where others would have to go otherwise.
bool packs_for_memory(const Rates& rates, double ratio, bool has_disk);

struct Sleeper {
  std::uint64_t tenant = 0;
  std::int64_t since_ns = 0;  // when it was suspended
  double wakes = 0;           // recent resumes, older ones count less
};
std::vector<std::uint64_t> spill_order(std::vector<Sleeper> sleepers);
// Only jobs that were resumed before.
std::vector<std::uint64_t> wake_order(std::vector<Sleeper> sleepers);
// What earlier resumes count for now: half after an hour.
double faded(double wakes, std::int64_t elapsed_ns);

}  // namespace billow::gpumem
