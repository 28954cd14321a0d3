// Packs of one large piece. Content begins at a page of the pack's file: file systems that can
// share blocks between files (XFS, Btrfs) give a job its file without copying.
//
// In front of the piece stands a filler, itself a piece of zeros, so that any reader of packs can
// read this one.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>

#include "base/crypto.h"
#include "files/tree.h"

namespace billow::files {

inline constexpr std::size_t large_pack_begin = 4096;  // where the content begins
inline constexpr std::size_t large_piece_min = 256 << 10;

struct AlignedFree {
  void operator()(char* memory) const { std::free(memory); }
};
using AlignedMemory = std::unique_ptr<char, AlignedFree>;
AlignedMemory aligned_memory(std::size_t size);

// Writes everything that stands before the content of such a pack.
void begin_large_pack(char* pack, const Sha256& digest, std::uint64_t size);

// Reads just so much of a client's file. A file that became shorter is an error.
Status read_part(int fd, char* into, std::size_t size, std::uint64_t offset);

}  // namespace billow::files
