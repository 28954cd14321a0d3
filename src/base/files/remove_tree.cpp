#include "base/files/remove_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <utility>

#include "base/crypto.h"
#include "base/file.h"

namespace billow {
namespace {

// Each level takes a descriptor. What lies deeper is moved up and removed after that: whoever made
// the tree may have made it deeper than a process may have descriptors.
constexpr int levels_max = 32;

enum class Enters { all, directories_of_one_user };

class Remover {
 public:
  Remover(int top, Enters enters) : top_(top), enters_(enters) {}

  // An error number; 0: the directory is empty, but for directories of others.
  int run(uid_t owner) {
    do {
      if (const int error = empty(top_, owner, 1))
        return error;
    } while (std::exchange(moved_, false));
    return 0;
  }
  bool left_some() const { return left_some_; }

 private:
  int empty(int directory, uid_t owner, int level) {
    const int copy = ::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const std::unique_ptr<DIR, int (*)(DIR*)> dir(copy < 0 ? nullptr : ::fdopendir(copy),
                                                  ::closedir);
    if (!dir)
      return errno;
    for (;;) {
      errno = 0;
      const dirent* item = ::readdir(dir.get());
      if (!item)
        return errno;
      const std::string name = item->d_name;
      if (name == "." || name == ".." || ::unlinkat(directory, name.c_str(), 0) == 0)
        continue;
      if (errno == ENOENT)
        continue;
      if (errno != EISDIR && errno != EPERM)
        return errno;
      if (const int error = remove_directory(directory, owner, name, level))
        return error;
    }
  }

  // `owner` is that of the directory above.
  int remove_directory(int directory, uid_t owner, const std::string& name, int level) {
    const Fd below(
        ::openat(directory, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!below) {
      const int error = errno;
      // An empty one need not be readable.
      if (error == ENOENT || ::unlinkat(directory, name.c_str(), AT_REMOVEDIR) == 0)
        return 0;
      return error == ENOTDIR ? EPERM : error;  // not a directory, but it cannot be unlinked
    }
    struct stat info {};
    if (::fstat(below.get(), &info) != 0)
      return errno;
    const bool of_another = enters_ != Enters::all && info.st_uid != owner;
    if (of_another && owner != ::geteuid()) {
      left_some_ = true;
      return 0;
    }
    if (level >= levels_max && !of_another) {
      moved_ = true;
      const std::string aside = "." + hex(random_bytes(8));  // not a name that is there already
      return ::renameat(directory, name.c_str(), top_, aside.c_str()) == 0 ? 0 : errno;
    }
    if (const int error = of_another ? empty_of_another(below.get(), info.st_uid)
                                     : empty(below.get(), owner, level + 1))
      return error;
    if (::unlinkat(directory, name.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT)
      return 0;
    return left_some_ && errno == ENOTEMPTY ? 0 : errno;
  }

  // A user's, in one of ours: what lies deep in it is moved up in it and not to ours, where
  // directories of all users are entered.
  int empty_of_another(int directory, uid_t owner) {
    Remover remover(directory, enters_);
    const int error = remover.run(owner);
    left_some_ |= remover.left_some();
    return error;
  }

  const int top_;
  const Enters enters_;
  bool moved_ = false, left_some_ = false;
};

// Follows no link: others may change the tree meanwhile.
Status remove_top(const std::string& path, Enters enters, std::optional<uid_t> owner) {
  if (::unlink(path.c_str()) == 0 || errno == ENOENT)
    return {};
  const int kept = errno;
  const Fd top(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!top) {
    const int error = errno;
    if (error == ENOENT || ::rmdir(path.c_str()) == 0)
      return {};
    return fail_errno(path, error == ENOTDIR ? kept : error);
  }
  struct stat info {};
  if (::fstat(top.get(), &info) != 0)
    return fail_errno(path, errno);
  Remover remover(top.get(), enters);
  const bool of_another = owner && info.st_uid != *owner;
  if (const int error = of_another ? 0 : remover.run(info.st_uid))
    return fail_errno(path, error);
  if (of_another || remover.left_some())
    return fail(Code::forbidden, path + " holds a directory of another user, which is not removed",
                "ask its owner, and move it away");
  if (::rmdir(path.c_str()) != 0 && errno != ENOENT)
    return fail_errno(path, errno);
  return {};
}

}  // namespace

Status remove_tree(const std::string& path) {
  return remove_top(path, Enters::all, std::nullopt);
}

Status remove_tree_of_user(const std::string& path, std::optional<unsigned> owner) {
  return remove_top(path, Enters::directories_of_one_user, owner);
}

}  // namespace billow
