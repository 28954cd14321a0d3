// What a directory's files were when they were last looked at, beside the user's other caches: a
// file whose size, times and inode are the same is not read again. One record a file, binary,
// because it is read before every job. A loss of it costs time, nothing else.
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
    fresh_.emplace_back(path, std::move(known)), changed_ = true;
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
