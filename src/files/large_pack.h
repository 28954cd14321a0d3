// Packs of one large piece. Its content begins at a page of the pack's file: file systems that can
// share blocks between files (XFS, Btrfs) give a job its file without copying, and such a pack can
// be written past the page cache.
//
// In front of the piece stands a filler, itself a piece of zeros, so that any reader of packs can
// read this one.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/crypto.h"
#include "base/result.h"
#include "files/tree.h"

namespace billow::files {

inline constexpr std::size_t large_pack_begin = 4096;  // where the content begins
inline constexpr std::size_t large_piece_min = 256 << 10;

struct AlignedFree {
  void operator()(char* memory) const { std::free(memory); }
};
using AlignedMemory = std::unique_ptr<char, AlignedFree>;
AlignedMemory aligned_memory(std::size_t size);

bool is_filler(const Sha256& digest, std::uint64_t size);
// Writes everything that stands before the content of such a pack.
void begin_large_pack(char* pack, const Sha256& digest, std::uint64_t size);

// Writes packs. Those of large pieces go past the page cache as long as the disk is fast: the
// memory stays free for the job's own files, and nothing has to be written back later. A slow disk
// gets them through the page cache, which nobody has to wait for.
class PackWriter {
 public:
  Status write(const std::string& path, std::string_view pack);
  // What the disk must take, from each of a few threads.
  static constexpr std::uint64_t fast_bytes_per_s = 256 << 20;

 private:
  // False: it must be written in another way.
  bool write_directly(const std::string& path, std::string_view pack);
  std::atomic<std::int64_t> directly_again_ns_{0};
};

}  // namespace billow::files
