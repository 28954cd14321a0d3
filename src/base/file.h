// Files and descriptors: an owning Fd, whole-file reads with a limit, and atomic writes.
#pragma once

#include <unistd.h>

#include <string>
#include <utility>

#include "base/result.h"

namespace billow {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
  Fd& operator=(Fd&& o) noexcept {
    if (this != &o) {
      reset();
      fd_ = std::exchange(o.fd_, -1);
    }
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { reset(); }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1) {
    if (fd_ >= 0)
      ::close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

Result<std::string> read_file(const std::string& path, std::size_t bytes_max = 64 << 20);
// Writes a temporary file in the same directory and renames it into place. With `sync` the content
// also survives a power failure.
Status write_file_atomic(const std::string& path,
                         std::string_view content,
                         unsigned mode = 0644,
                         bool sync = false);
Status make_directories(const std::string& path, unsigned mode = 0755);
bool file_exists(const std::string& path);
Status remove_tree(const std::string& path);
// The directory of this executable.
std::string executable_dir();
Status write_all(int fd, std::string_view data);

}  // namespace billow
