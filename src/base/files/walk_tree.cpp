#include "base/files/walk_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <memory>
#include <string_view>
#include <vector>

namespace billow {
namespace {

struct DirCloser {
  void operator()(DIR* dir) const { ::closedir(dir); }
};
using Dir = std::unique_ptr<DIR, DirCloser>;

Dir open_dir(int at, const char* name) {
  const int fd = ::openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0)
    return {};
  Dir dir(::fdopendir(fd));
  if (!dir)
    ::close(fd);
  return dir;
}

}  // namespace

void walk_tree(const std::string& top, const TreeVisit& visit) {
  std::vector<Dir> open;
  if (Dir first = open_dir(AT_FDCWD, top.c_str()))
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
      if (Dir below = open_dir(at, item->d_name))
        open.push_back(std::move(below));
    } else if (visit.too_deep) {
      visit.too_deep(at, item->d_name);
    }
  }
}

}  // namespace billow
