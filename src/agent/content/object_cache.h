// Models and data from outside, fetched once per node. Every object that jobs name (s3://,
// https://) is cached by content up to a limit and linked into each job's directory; only the agent
// may write the one copy.
//
// A job must have access to the object at its source: every request looks it up there with the
// job's own keys, and the cached copy is used only if the source says it is unchanged. Over the
// limit, the least recently used objects are removed, except those that a job uses.
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
    std::string directory;  // on the same file system as the jobs' directories, for hard links
    std::uint64_t bytes_max = 0;
  };
  static Result<std::unique_ptr<ObjectCache>> open(Options options);

  struct Asked {
    s3::Place place;
    s3::Access access;
    std::string root;               // the job's directory
    std::string path;               // relative to it
    std::optional<Identity> owner;  // of the created directories; none: the agent
    bool own_copies = false;        // the job could change a file that it shares with the cache
    s3::Caller caller = {};
  };
  struct Brought {
    std::uint64_t files = 0, bytes = 0, fetched_bytes = 0;
  };
  Result<Brought> bring(const Asked& asked);
  std::uint64_t bytes() const;
  // Removes every object that no job's directory links to.
  void forget_unused();

 private:
  explicit ObjectCache(Options options) : options_(std::move(options)) {}
  struct Kept {
    std::uint64_t size = 0;
    std::int64_t mtime_ns = 0;  // a later time means that the file was modified
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
  bool free_space(std::uint64_t bytes);
  void remove_unused(std::uint64_t down_to);  // least recently used first

  Options options_;
  mutable std::mutex mutex_;
  std::condition_variable fetched_;
  std::set<std::string> fetching_;
  std::map<std::string, std::string> by_key_;  // the source's name and version → digest
  std::map<std::string, Kept> kept_;           // by digest
  std::uint64_t bytes_ = 0;
};

}  // namespace billow::agent
