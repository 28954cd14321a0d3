// Remembers the files of a directory in the user's cache directory: a file with the same size,
// times and inode is not read again. One binary record per file, because it is read before every
// job. If the cache is lost, the next scan only takes longer.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/crypto.h"

namespace billow::files {

struct Known {
  std::uint64_t size = 0, inode = 0;
  std::int64_t mtime_ns = 0, ctime_ns = 0;
  std::vector<Sha256> pieces;
  bool same_file(const Known& o) const {
    return size == o.size && inode == o.inode && mtime_ns == o.mtime_ns && ctime_ns == o.ctime_ns;
  }
};

class ScanCache {
 public:
  explicit ScanCache(std::string path);
  const Known* find(const std::string& path) const;
  void note(const std::string& path, Known known) {
    fresh_.emplace_back(path, std::move(known));
    changed_ = true;
  }
  void keep(const std::string& path, const Known& known) { fresh_.emplace_back(path, known); }
  void save() const;

 private:
  std::string path_;
  std::unordered_map<std::string, Known> known_;
  std::vector<std::pair<std::string, Known>> fresh_;
  bool changed_ = false;
};

}  // namespace billow::files
