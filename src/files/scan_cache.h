// Remembers the files of a directory in the user's cache directory: a file with the same size,
// times and inode is not read again. One binary record per file, because it is read before every
// job. If the cache is lost, the next scan only takes longer.
//
// Records are in the order in which a scan comes to the files, so that most are found where the
// last one ended.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
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
  // Whether the file is as it was; then its pieces are set, and it is remembered further.
  bool find(const std::string& path, Known& now);
  void note(const std::string& path, Known known) { fresh_.emplace_back(path, std::move(known)); }
  void save() const;

 private:
  struct Record {
    std::string_view path, pieces, whole;
    Known known;  // without pieces
  };
  bool record_at(std::size_t at, Record& out) const;

  std::string path_;
  std::string text_;                                         // the file
  std::size_t at_ = 0;                                       // where the next record is expected
  std::unordered_map<std::string_view, std::size_t> index_;  // made when the order is another
  std::vector<std::string_view> kept_;                       // records
  std::vector<std::pair<std::string, Known>> fresh_;
};

}  // namespace billow::files
