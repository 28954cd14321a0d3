#include "agent/isolate/own_place.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/crypto.h"
#include "base/file.h"
#include "base/text.h"

namespace billow::agent {
namespace {

constexpr int tries_max = 8;

bool is_ours(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == ::geteuid() &&
         (info.st_mode & 022) == 0;
}

}  // namespace

Result<std::string> own_place(const std::string& data_dir, const std::string& under) {
  std::string file = data_dir + "/place" + under;
  std::replace(file.begin() + static_cast<std::ptrdiff_t>(data_dir.size()) + 1, file.end(), '/',
               '-');
  if (const auto kept = read_file(file, 256)) {
    const std::string path{trim(*kept)};
    if (path.starts_with(under + "/billow-") && is_ours(path))
      return path;
  }
  for (int i = 0; i < tries_max; ++i) {
    const std::string path = fmt::format("{}/billow-{}", under, hex(random_bytes(12)));
    if (::mkdir(path.c_str(), 0711) != 0) {
      if (errno == EEXIST)
        continue;
      return fail_errno(path, errno);
    }
    if (::chmod(path.c_str(), 0711) != 0)
      return fail_errno(path, errno);  // regardless of the umask
    BILLOW_TRY_VOID(write_file_atomic(file, path + "\n", 0600));
    return path;
  }
  return fail(Code::conflict,
              fmt::format("a private directory for this agent could not be created in {}", under));
}

}  // namespace billow::agent
