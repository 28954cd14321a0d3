// The list of a tree: every directory, file and link in it, with the digests of the files' pieces.
// Its own digest names the tree.
//
// Lists are not trusted: decode() rejects absolute paths, "..", entries below anything but a
// directory, links that lead out of the tree, and lists beyond the limits. So writing a tree can
// only touch the directory it is written to.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/crypto.h"
#include "base/result.h"

namespace billow::files {

// Files are sent and stored in pieces of this size: of a large file with a small change most pieces
// are known, and an interrupted upload resumes.
inline constexpr std::size_t piece_bytes = 4 << 20;
inline constexpr std::size_t tree_entries_max = 100'000;
inline constexpr std::size_t tree_list_bytes_max = 7 << 20;  // as one body of the API
inline constexpr std::uint64_t tree_bytes_max = 64ull << 30;

enum class Kind : unsigned char { directory = 'd', file = 'f', link = 'l' };

struct Entry {
  std::string path;  // relative, "/" between names
  Kind kind = Kind::file;
  std::uint32_t mode = 0644;  // permission bits only: no set-uid, no sticky
  std::uint64_t size = 0;
  std::string target;          // of a link
  std::vector<Sha256> pieces;  // of a file: ceil(size / piece_bytes) of them
};

struct Tree {
  std::vector<Entry> entries;  // by path, a directory before its content
  std::uint64_t bytes() const;
};

std::string encode(const Tree& tree);
Result<Tree> decode(std::string_view list);

// Whether a link at `path` stays inside its tree: its target is relative, ".." comes first if at
// all, and never leads above the root. ".." after a name is rejected even if it looks harmless: the
// name may be a link itself, and then ".." leads elsewhere.
bool link_stays_inside(std::string_view path, std::string_view target);
// The Python of a virtual environment, `.venv/bin/python3 -> /usr/bin/python3`: the one link that
// may lead out of a tree, because nothing in the environment works without it.
bool is_interpreter_link(std::string_view path, std::string_view target);

// The size of one piece: only the last piece of a file may be shorter.
std::size_t piece_size(const Entry& entry, std::size_t index);
std::string digest_hex(const Sha256& digest);
Result<Sha256> parse_digest(std::string_view hex);

}  // namespace billow::files
