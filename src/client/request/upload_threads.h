// Threads that upload, with a progress line while they work.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

namespace billow::client {

struct UploadThreads {
  std::size_t count = 1;
  std::uint64_t bytes_total = 0;
  const std::atomic<std::uint64_t>& bytes_sent;
};
// Calls `work` on each of the threads and returns when all have ended.
void upload_in_threads(const UploadThreads& threads, const std::function<void()>& work);

}  // namespace billow::client
