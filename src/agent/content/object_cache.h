// Models and data from elsewhere, fetched once per node: every object that jobs here name (s3://,
// https://) is kept by its content up to a limit, and lies in each job's directory as a link to the
// one copy, which nobody but the agent may write.
//
// Whoever asks must be able to have the object at its source: it is looked up there with the job's
// own keys every time, and what is kept is used only where the source says that it is still the
// same. Beyond the limit the longest unused goes, but nothing that a job has.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "agent/isolate/task_spec.h"
#include "base/result.h"
#include "s3/objects.h"

namespace billow::agent {

class ObjectCache {
 public:
  struct Options {
    std::string directory;  // on the file system of the jobs' directories, or links cannot be made
    std::uint64_t bytes_max = 0;
  };
  static Result<std::unique_ptr<ObjectCache>> open(Options options);

  struct Asked {
    s3::Place place;
    s3::Access access;
    std::string root;               // the job's directory
    std::string path;               // in it
    std::optional<Identity> owner;  // of the directories that are made; none: the agent
  };
  struct Brought {
    std::uint64_t files = 0, bytes = 0, fetched_bytes = 0;
  };
  Result<Brought> bring(const Asked& asked);
  std::uint64_t bytes() const;
  // Removes everything that lies in no job's directory.
  void forget_unused();

 private:
  explicit ObjectCache(Options options) : options_(std::move(options)) {}
  struct Kept {
    std::uint64_t size = 0;
    std::int64_t mtime_ns = 0;  // it was never written since
    std::int64_t used_ns = 0;
  };
  void load();
  Result<std::string> get(const s3::Objects& objects,
                          const Asked& asked,
                          const s3::Object& object,
                          Brought& brought);
  Result<std::string> fetch(const s3::Objects& objects,
                            const Asked& asked,
                            const s3::Object& object,
                            const std::string& key);
  std::string kept_path(const std::string& digest) const {
    return options_.directory + "/objects/" + digest;
  }
  bool still_good(const std::string& digest);
  bool make_room(std::uint64_t bytes);
  void remove_unused(std::uint64_t down_to);  // the longest unused first

  Options options_;
  mutable std::mutex mutex_;
  std::condition_variable fetched_;
  std::set<std::string> fetching_;
  std::map<std::string, std::string> by_key_;  // what the source calls it → digest
  std::map<std::string, Kept> kept_;           // by digest
  std::uint64_t bytes_ = 0;
};

}  // namespace billow::agent
