// Turns a directory into a tree. Only files that changed since the last scan are read: a file in
// the user's cache directory remembers size, times, inode and digests of each file.
#pragma once

#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "files/store.h"
#include "files/tree.h"

namespace billow::files {

struct Source {
  std::string path;  // the file with the piece
  std::uint64_t offset = 0;
  std::uint32_t size = 0;
};

struct Scan {
  Tree tree;
  // Where each piece can be read. Empty if somebody else has read all files (digester).
  std::unordered_map<Sha256, Source, DigestHash> sources;
  std::vector<std::string> warnings;  // ".env may contain secrets and is left out"
};

// A file whose digests are wanted.
struct Undigested {
  std::string path;  // as it can be opened
  std::uint64_t size = 0;
  std::int64_t mtime_ns = 0, ctime_ns = 0;
  std::vector<Sha256> pieces;  // the answer
};

struct ScanOptions {
  std::string root;
  std::vector<std::string> only;  // only these relative paths; empty: everything
  // Apply .gitignore and .billowignore, and leave out files that look like secrets.
  bool ignore_files = true;
  std::string cache;  // a file; empty: read everything
  // Computes the digests of files that the cache does not know, if somebody else is to read them.
  // False: it cannot, and they are read here.
  std::function<Result<bool>(std::vector<Undigested>&)> digester = {};
};

Result<Scan> scan(const ScanOptions& options);
// The regular files at or below a path, relative to the root. Links are neither followed nor
// listed.
Result<std::vector<std::string>> list(const std::string& root, const std::string& path);
// The content of the piece. An error if the file has changed since the scan.
Result<std::string> read_piece(const Source& source, const Sha256& digest);

// Writes a tree into an existing directory; `piece` returns the content of each piece, in order.
// Follows no links that existed before and never leaves the directory. Existing files that are in
// the tree are replaced.
struct TreeSource {
  std::function<Result<std::string>(const Sha256&)> piece;
  // If set: fills files of at least `large_bytes_min`, some at a time, after all others are
  // written.
  std::function<Status(const std::vector<int>& descriptors)> fill_large = {};
  std::uint64_t large_bytes_min = UINT64_MAX;
  std::size_t large_at_once = 1;
  // No other process uses the directory: new files get their names before they are complete.
  bool alone = false;
};
Status write_tree(const std::string& directory, const Tree& tree, const TreeSource& source);
inline Status write_tree(const std::string& directory,
                         const Tree& tree,
                         const std::function<Result<std::string>(const Sha256&)>& piece) {
  return write_tree(directory, tree, TreeSource{.piece = piece});
}

}  // namespace billow::files
