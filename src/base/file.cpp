#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>
#include <filesystem>

#include "base/platform.h"

namespace billow {

Result<std::string> read_file(const std::string& path, std::size_t bytes_max) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd)
    return fail_errno(path, errno);
  std::string out;
  char buffer[65536];
  while (true) {
    const ssize_t n = ::read(fd.get(), buffer, sizeof buffer);
    if (n == 0)
      return out;
    if (n < 0) {
      if (errno == EINTR)
        continue;
      return fail_errno(path, errno);
    }
    if (out.size() + static_cast<std::size_t>(n) > bytes_max)
      return fail(Code::too_large, fmt::format("{} is larger than {} bytes", path, bytes_max));
    out.append(buffer, static_cast<std::size_t>(n));
  }
}

Status write_all(int fd, std::string_view data) {
  while (!data.empty()) {
    const ssize_t n = ::write(fd, data.data(), data.size());
    if (n < 0) {
      if (errno == EINTR)
        continue;
      return fail_errno("write", errno);
    }
    data.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

Status write_file_atomic(const std::string& path,
                         std::string_view content,
                         unsigned mode,
                         bool sync) {
  const std::string temporary = fmt::format("{}.{}.tmp", path, ::getpid());
  Fd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, mode));
  if (!fd)
    return fail_errno(temporary, errno);
  Status written = write_all(fd.get(), content);
  if (written && sync && ::fsync(fd.get()) != 0)
    written = fail_errno("fsync", errno);
  fd.reset();
  if (written && ::rename(temporary.c_str(), path.c_str()) != 0)
    written = fail_errno("rename", errno);
  if (!written) {
    ::unlink(temporary.c_str());
    return pass(written.error(), path);
  }
  if (sync) {
    const std::string dir = std::filesystem::path(path).parent_path().string();
    Fd d(::open(dir.empty() ? "." : dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (d)
      ::fsync(d.get());
  }
  return {};
}

Status make_directories(const std::string& path, unsigned mode) {
  for (std::size_t at = path.find('/', 1);; at = path.find('/', at + 1)) {
    const std::string part = path.substr(0, at);
    if (::mkdir(part.c_str(), mode) != 0 && errno != EEXIST)
      return fail_errno(part, errno);
    if (at == std::string::npos)
      return {};
  }
}

bool file_exists(const std::string& path) {
  return ::access(path.c_str(), F_OK) == 0;
}

std::string executable_dir() {
  const std::string program = platform::this_program();
  return program.empty() ? "." : std::filesystem::path(program).parent_path().string();
}

}  // namespace billow
