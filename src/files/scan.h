// A directory becomes a tree. Only what changed since the last look is read: a small file beside
// the user's other caches remembers size, times and inode of each file with its digests.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "files/store.h"
#include "files/tree.h"

namespace billow::files {

struct Source {
  std::string path;  // of the file that holds the piece
  std::uint64_t offset = 0;
  std::uint32_t size = 0;
};

struct Scan {
  Tree tree;
  std::unordered_map<Sha256, Source, DigestHash> sources;  // where each piece can be read
  std::vector<std::string> warnings;                       // ".env may hold secrets and stays here"
};

struct ScanOptions {
  std::string root;
  std::vector<std::string> only;  // these paths alone (relative); empty: everything
  bool ignore_files =
      true;           // honour .gitignore and .billowignore, and leave out what looks like a secret
  std::string cache;  // file; empty: read everything
};

Result<Scan> scan(const ScanOptions& options);
// The plain files at or below a path, by their paths from the root. Links are not followed and not
// listed.
Result<std::vector<std::string>> list(const std::string& root, const std::string& path);
// The piece itself. An error where the file changed since it was looked at.
Result<std::string> read_piece(const Source& source, const Sha256& digest);

// Writes a tree into an existing directory. `piece` is asked for each piece in order. Never follows
// a link that it did not make, and never leaves the directory; what is there already is replaced
// where the tree has it.
Status write_tree(const std::string& directory,
                  const Tree& tree,
                  const std::function<Result<std::string>(const Sha256&)>& piece);

}  // namespace billow::files
