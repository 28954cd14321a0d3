#include "gateway/record/disk_writer.h"

#include <algorithm>
#include <utility>

#include "base/file.h"
#include "base/log.h"

namespace billow::gateway {

DiskWriter::~DiskWriter() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable())
    thread_.join();
}

void DiskWriter::add(Job job) {
  jobs_.push_back(std::move(job));
  if (!thread_.joinable())
    thread_ = std::thread([this] { work(); });
  changed_.notify_all();
}

bool DiskWriter::run(std::function<void()> write) {
  const std::lock_guard lock(mutex_);
  if (jobs_.size() >= jobs_max)
    return false;
  add({.write = std::move(write), .path = {}, .content = {}});
  return true;
}

void DiskWriter::replace(const std::string& path, std::string content) {
  const std::lock_guard lock(mutex_);
  const auto waiting = std::ranges::find(jobs_, path, &Job::path);
  if (waiting != jobs_.end())
    waiting->content = std::move(content);
  else
    add({.write = nullptr, .path = path, .content = std::move(content)});
}

void DiskWriter::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return jobs_.empty() && !busy_; });
}

void DiskWriter::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return !jobs_.empty() || ending_; });
    if (jobs_.empty())
      return;
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    busy_ = true;
    lock.unlock();
    if (job.path.empty())
      job.write();
    else if (const auto written = write_file_atomic(job.path, job.content, 0600); !written)
      log_warn("{}", written.error().message);
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

}  // namespace billow::gateway
