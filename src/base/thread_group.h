// Threads that belong to an object. A thread that has ended is joined when the next one starts; the
// rest are joined by `join` or the destructor, so no thread can outlive the data it uses. The owner
// makes its threads end (by closing their sockets, for example) before it joins them.
#pragma once

#include <atomic>
#include <list>
#include <mutex>
#include <thread>
#include <utility>

namespace billow {

class ThreadGroup {
 public:
  ThreadGroup() = default;
  ThreadGroup(const ThreadGroup&) = delete;
  ThreadGroup& operator=(const ThreadGroup&) = delete;
  ~ThreadGroup() { join(); }

  template <class Run>
  void start(Run run) {
    const std::lock_guard guard(lock_);
    threads_.remove_if([](Entry& entry) {
      if (!entry.ended)
        return false;
      entry.thread.join();
      return true;
    });
    Entry& entry = threads_.emplace_back();
    entry.thread = std::thread([run = std::move(run), &ended = entry.ended]() mutable {
      run();
      ended = true;
    });
  }

  // Waits for every thread. Must not be called by one of them.
  void join() {
    std::list<Entry> threads;
    {
      const std::lock_guard guard(lock_);
      threads.splice(threads.end(), threads_);
    }
    for (Entry& entry : threads)
      if (entry.thread.joinable())
        entry.thread.join();
  }

 private:
  struct Entry {
    std::atomic<bool> ended = false;
    std::thread thread;
  };
  std::mutex lock_;
  std::list<Entry> threads_;
};

}  // namespace billow
