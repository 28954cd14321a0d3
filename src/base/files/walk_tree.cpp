#include "base/files/walk_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <string_view>
#include <vector>

namespace billow {
DirStream open_dir_stream(int at, const char* name) {
  const int fd = ::openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0)
    return {};
  DirStream dir(::fdopendir(fd));
  if (!dir)
    ::close(fd);
  return dir;
}

void walk_tree(const std::string& top, const TreeVisit& visit) {
  std::vector<DirStream> open;
  if (DirStream first = open_dir_stream(AT_FDCWD, top.c_str()))
    open.push_back(std::move(first));
  while (!open.empty()) {
    const dirent* item = ::readdir(open.back().get());
    if (!item) {
      open.pop_back();
      continue;
    }
    const std::string_view name = item->d_name;
    if (name == "." || name == "..")
      continue;
    const int at = ::dirfd(open.back().get());
    struct stat info {};
    if (::fstatat(at, item->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0)
      continue;
    if (!visit.entry(at, item->d_name, info))
      return;
    if (!S_ISDIR(info.st_mode))
      continue;
    if (open.size() < walk_levels_max) {
      if (DirStream below = open_dir_stream(at, item->d_name))
        open.push_back(std::move(below));
    } else if (visit.too_deep) {
      visit.too_deep(at, item->d_name);
    }
  }
}

}  // namespace billow
