#include "privileged/content.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace billow::privileged {

Result<std::string> read_content(const Fd& memory, std::size_t bytes_max) {
  constexpr int needed = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW;
  const int seals = memory ? ::fcntl(memory.get(), F_GET_SEALS) : -1;
  if (seals < 0 || (seals & needed) != needed)
    return fail(Code::invalid, "a descriptor beside the message is not sealed memory");
  struct stat info {};
  if (::fstat(memory.get(), &info) != 0)
    return fail_errno("look at sealed memory", errno);
  const auto size = static_cast<std::size_t>(info.st_size);
  if (size > bytes_max)
    return fail(Code::too_large,
                fmt::format("sealed memory of {} bytes exceeds the limit of {}", size, bytes_max));
  std::string content(size, '\0');
  for (std::size_t at = 0; at < size;) {
    const ssize_t n = ::pread(memory.get(), content.data() + at, size - at, static_cast<off_t>(at));
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return fail_errno("read sealed memory", n < 0 ? errno : EIO);
    at += static_cast<std::size_t>(n);
  }
  return content;
}

}  // namespace billow::privileged
