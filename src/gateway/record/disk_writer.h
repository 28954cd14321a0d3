// Writes files on a thread of its own. A busy disk blocks every writer, even into the
// page cache (the file system commits its journal, or others write much); a loop that wrote itself
// would stop all its requests for as long.
//
// Order: writes happen in the order in which they were asked for. Nobody waits: while `jobs_max`
// writes are waiting, no other is taken.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace billow::gateway {

class DiskWriter {
 public:
  static constexpr std::size_t jobs_max = 256;

  DiskWriter() = default;
  ~DiskWriter();  // everything is written first
  DiskWriter(const DiskWriter&) = delete;
  DiskWriter& operator=(const DiskWriter&) = delete;

  bool run(std::function<void()> write);  // false: too many are waiting
  // Replaces the file by one that only its owner reads; always taken. If an earlier content still
  // waits, it is not written. Failures are logged.
  void replace(const std::string& path, std::string content);
  // Until everything so far is written.
  void wait();

 private:
  struct Job {
    std::function<void()> write;
    std::string path, content;  // of a file to replace; without a path, `write` is called
  };
  void add(Job job);  // under the lock
  void work();

  std::mutex mutex_;  // for the rest
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  bool busy_ = false, ending_ = false;
  std::thread thread_;  // started with the first job
};

}  // namespace billow::gateway
