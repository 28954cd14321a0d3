// The files in a data directory beside the database: the lock that keeps a second head out, the
// ballast that keeps a full disk recoverable, and the snapshots. Snapshots are files, not blobs: a
// large one in the database would pass through the WAL and delay commits behind it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "store/journal.h"

namespace billow {

// An exclusive flock on `lock`, which contains the owner's pid. The kernel releases it when the
// process ends in any way.
Result<Fd> lock_data_dir(const std::string& data_dir);

// Disk space allocated in advance, to be given up when the disk is full.
class Ballast {
 public:
  Ballast(std::string path, std::uint64_t bytes) : path_(std::move(path)), bytes_(bytes) {}
  Status make();  // allocates it unless it exists; leaves nothing behind if the space is missing
  void release();
  bool held() const { return held_; }
  bool space_again() const;  // free space for it and half as much again, so that allocating it
                             // does not fill the disk at once

 private:
  std::string path_;
  std::uint64_t bytes_;
  bool held_ = false;
};

// `snapshots/<seq>.snap`: a header line with size and SHA-256, then the bytes. Written to a
// temporary file, synced, renamed. Two are kept.
class Snapshots {
 public:
  explicit Snapshots(const std::string& data_dir) : dir_(data_dir + "/snapshots") {}
  Status save(Seq seq, std::string_view bytes) const;
  // The newest intact one with seq ≤ last. A damaged one is logged and skipped.
  Result<std::optional<Snapshot>> load(Seq last) const;
  bool intact(Seq seq) const;
  std::vector<Seq> list() const;  // descending
  std::string path(Seq seq) const;
  const std::string& dir() const { return dir_; }

 private:
  std::string dir_;
};

Status sync_directory(const std::string& path);

}  // namespace billow
