#include "client/request/upload_threads.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "client/frame/progress.h"

namespace billow::client {

void upload_in_threads(const UploadThreads& threads, const std::function<void()>& work) {
  std::mutex mutex;
  std::condition_variable ended;
  std::size_t working = threads.count;
  std::vector<std::thread> running;
  for (std::size_t i = 0; i < threads.count; ++i)
    running.emplace_back([&] {
      work();
      std::lock_guard lock(mutex);
      --working;
      ended.notify_one();
    });
  Progress progress("upload", ProgressUnit::bytes);
  for (std::unique_lock lock(mutex);
       !ended.wait_for(lock, std::chrono::milliseconds(100), [&] { return working == 0; });)
    progress.update(threads.bytes_sent, threads.bytes_total);
  for (std::thread& thread : running)
    thread.join();
}

}  // namespace billow::client
