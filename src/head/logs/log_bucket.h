// A bucket that has the logs of ended tasks (`billow up --logs s3://bucket/prefix`). The head's own
// copies are a cache of it: a log that the head no longer has is read from here. Objects are
// PREFIX/INSTALLATION/TASK.log (as the head keeps it), TASK.part (of a machine that vanished) and
// TASK.json (how the task ended, and what it used).
//
// What cannot be sent now is sent later: an empty file beside a log says that the bucket has it, so
// a head that starts knows the rest. Runs on the loop's thread; requests are made by two workers.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "net/workers.h"
#include "pool/ec2/bucket_access.h"
#include "s3/objects.h"

namespace billow::head {

class LogBucket {
 public:
  struct Options {
    std::string url;           // "s3://bucket/prefix"
    std::string installation;  // distinguishes installations that share a bucket
    std::string directory;     // for what is fetched
    net::Loop* loop = nullptr;
    const Clock* clock = nullptr;
  };
  static Result<std::unique_ptr<LogBucket>> open(Options options);

  // Sends the file; `whole`: nothing is missing at its end.
  void keep(TaskId task, const std::string& path, bool whole);
  // How the task ended, as JSON.
  void keep_end(TaskId task, std::string json);
  bool has(TaskId task) const { return kept_.contains(task); }
  // An earlier head has sent it.
  void note_kept(TaskId task) { kept_.insert(task); }
  static std::string marker(const std::string& path);

  struct Fetched {
    std::string path;
    bool whole = true;
  };
  using OnFetched = std::function<void(Result<Fetched>)>;
  void fetch(TaskId task, OnFetched fn);
  void look();  // on a timer: what could not be sent is sent again

 private:
  struct Item {
    std::string path;  // empty: `text` is sent
    std::string text;
    bool marks = false;  // a log, whose marker says that it was sent
  };
  explicit LogBucket(Options options);
  void send(const std::string& key, Item item);
  void sent(const std::string& key, const Item& item, const Status& result);
  Result<s3::Access> access() const;
  std::string key_of(TaskId task, const char* kind) const;
  Status put(const std::string& key, const Item& item) const;
  Result<Fetched> get(TaskId task) const;

  Options options_;
  s3::Place place_;
  mutable pool::ec2::Wire wire_;  // for its credentials
  std::set<TaskId> kept_;
  std::map<std::string, Item> waiting_;  // by key
  std::optional<SteadyTime> next_try_;
  SteadyTime next_warning_;
  std::unique_ptr<net::Workers> senders_;
  std::unique_ptr<net::Workers> fetchers_;
};

}  // namespace billow::head
