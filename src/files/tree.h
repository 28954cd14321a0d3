// The list of a tree: every directory, file and link in it, with the digests of the files' pieces.
// Its own digest names the tree.
//
// A list from elsewhere is not believed: decode() refuses paths that are absolute or lead upwards,
// entries below something that is not a directory, links that lead out of the tree, and more than
// the limits allow, so that writing a tree out can only ever touch the directory it is written to.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/crypto.h"
#include "base/result.h"

namespace billow::files {

// Files travel and are kept in pieces of this size: a large file that changed a little is mostly
// known, and an upload that broke off goes on where it was.
inline constexpr std::size_t piece_bytes = 4 << 20;
inline constexpr std::size_t tree_entries_max = 100'000;
inline constexpr std::size_t tree_list_bytes_max = 7 << 20;  // as one body of the API
inline constexpr std::uint64_t tree_bytes_max = 64ull << 30;

enum class Kind : unsigned char { directory = 'd', file = 'f', link = 'l' };

struct Entry {
  std::string path;  // relative, "/" between names
  Kind kind = Kind::file;
  std::uint32_t mode = 0644;  // permission bits alone: no set-uid, no sticky
  std::uint64_t size = 0;
  std::string target;          // of a link
  std::vector<Sha256> pieces;  // of a file: ceil(size / piece_bytes) of them
};

struct Tree {
  std::vector<Entry> entries;  // by path, a directory before what is in it
  std::uint64_t bytes() const;
};

std::string encode(const Tree& tree);
Result<Tree> decode(std::string_view list);

// Whether a link at `path` can only lead into its tree: a relative way that goes up first, if at
// all, and never above the root. ".." after a name is refused even where it looks harmless: the
// name may be a link itself, and then ".." is not where it seems to be.
bool link_stays_inside(std::string_view path, std::string_view target);

// The bytes of one piece: all but the last of a file are whole.
std::size_t piece_size(const Entry& entry, std::size_t index);
std::string digest_hex(const Sha256& digest);
Result<Sha256> parse_digest(std::string_view hex);

}  // namespace billow::files
