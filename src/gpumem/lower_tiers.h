// Space for pieces below the arena: pageable memory and a file, each within a limit, compressed
// where the measured rates say that it pays. Thread-safe.
//
// Each job has a file of its own without a name (O_TMPFILE) in a directory that only this service
// can enter: the kernel frees its blocks when the service ends, however that happens, and no job
// can reach it. Space is allocated before it is written, so a full disk is noticed while the piece
// is still where it was. Freed space is punched out of the file.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "gpumem/piece_store.h"
#include "gpumem/sleep_policy.h"
#include "gpumem/squeeze.h"

namespace billow::gpumem {

// Calls work(0) … work(count - 1) on several threads.
void in_parallel(std::size_t count, unsigned threads, const std::function<void(std::size_t)>& work);

class LowerTiers {
 public:
  using Place = LowerCopy::Place;
  struct Options {
    std::uint64_t memory_bytes = 0;
    std::string directory;  // empty: no file
    std::uint64_t file_bytes = 0;
    unsigned threads = 8;
  };
  // A directory that cannot be used is reported by `file_error`; the other tiers work.
  explicit LowerTiers(Options options);
  ~LowerTiers();
  LowerTiers(const LowerTiers&) = delete;

  // Copies a piece to a place. Its address must be aligned to a page, and the page's rest readable.
  Result<LowerCopy> store(std::uint64_t tenant, const char* data, std::uint32_t bytes, Place place);
  // Copies a stored piece to a file as it is, packed or not.
  Result<LowerCopy> sink(std::uint64_t tenant, const LowerCopy& copy);
  // `into` has space for the piece, rounded up to a page, and is aligned to one.
  Status load(std::uint64_t tenant, const LowerCopy& copy, char* into, std::uint32_t bytes);
  void release(std::uint64_t tenant, const LowerCopy& copy);
  void forget(std::uint64_t tenant);  // closes its file

  bool any() const { return options_.memory_bytes || options_.file_bytes; }
  bool has_file() const { return options_.file_bytes && file_error_.empty(); }
  const std::string& file_error() const { return file_error_; }
  std::uint64_t memory_bytes() const { return options_.memory_bytes; }
  std::uint64_t memory_used() const { return memory_used_; }
  std::uint64_t memory_free() const;
  std::uint64_t file_bytes() const { return has_file() ? options_.file_bytes : 0; }
  std::uint64_t file_used() const { return file_used_; }
  std::uint64_t file_free() const;  // by the limit and by the free space of the filesystem
  bool file_stuck() const;          // a write failed a moment ago
  unsigned threads() const { return options_.threads; }

  Rates rates() const;
  enum class Rated { gpu, memory, write, read, unpack };
  void rated(Rated what, double bytes, double seconds);  // something was measured again

 private:
  struct File;
  Result<std::shared_ptr<File>> file_of(std::uint64_t tenant, bool create);
  Result<LowerCopy> write(std::uint64_t tenant,
                          const char* data,
                          std::uint32_t bytes,
                          std::uint8_t packed);
  // Bytes of the packed piece in the thread's buffer; 0: it does not pay.
  std::uint32_t pack(const char* data, std::uint32_t bytes, Place place, LowerCopy& made);
  char* map(std::uint32_t bytes);
  void unmap(char* memory, std::uint32_t bytes);
  void punch();
  void measure();
  void measure_disk();
  void measure_packing();
  void set(double Rates::*rate, double value);

  Options options_;
  std::string file_error_;
  Squeeze squeeze_;
  std::atomic<int> level_{Squeeze::thorough};
  std::atomic<std::uint64_t> memory_used_{0}, file_used_{0};
  std::atomic<std::int64_t> stuck_until_ns_{0};
  mutable std::mutex lock_;  // guards the members below
  std::map<std::uint64_t, std::shared_ptr<File>> files_;
  Rates rates_;
  std::atomic<bool> stop_{false};
  std::thread measurer_;
  // Whole pieces lie in one range of addresses, in huge pages where the kernel has them: a mapping
  // for each would cost hundreds of page faults.
  char* range_ = nullptr;
  std::mutex range_lock_;
  std::vector<std::uint32_t> range_free_;
  // Space in files is freed in the background, because a disk may take a millisecond for it.
  struct Hole {
    std::shared_ptr<File> file;
    std::uint64_t at, bytes;
  };
  std::mutex holes_lock_;
  std::condition_variable holes_wait_;
  std::vector<Hole> holes_;
  std::thread puncher_;
};

}  // namespace billow::gpumem
