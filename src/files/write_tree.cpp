// A tree becomes files again, whoever made its list and whatever happens meanwhile in the directory
// it is written to.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crypto.h"
#include "base/file.h"
#include "base/text.h"
#include "files/scan.h"

namespace billow::files {

Status write_tree(const std::string& directory,
                  const Tree& tree,
                  const std::function<Result<std::string>(const Sha256&)>& piece) {
  const Fd root(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root)
    return fail_errno(directory, errno);
  // Directories are opened one below the other without following links, so nothing that somebody
  // swaps meanwhile leads elsewhere.
  std::string open_path;
  Fd open_dir(::dup(root.get()));
  const auto parent_of = [&](const std::string& path, std::string& name) -> Result<int> {
    const auto slash = path.rfind('/');
    const std::string parent = slash == std::string::npos ? "" : path.substr(0, slash);
    name = slash == std::string::npos ? path : path.substr(slash + 1);
    if (parent == open_path)
      return open_dir.get();
    Fd at(::dup(root.get()));
    if (!parent.empty())
      for (const std::string& part : split(parent, '/')) {
        Fd next(::openat(at.get(), part.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
        if (!next)
          return fail_errno(directory + "/" + parent, errno);
        at = std::move(next);
      }
    open_dir = std::move(at);
    open_path = parent;
    return open_dir.get();
  };
  for (const Entry& e : tree.entries) {
    std::string name;
    const int at = BILLOW_TRY(parent_of(e.path, name));
    switch (e.kind) {
      case Kind::directory:
        if (::mkdirat(at, name.c_str(), (e.mode & 0777) | 0700) != 0) {
          struct stat info {};
          if (errno != EEXIST || ::fstatat(at, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 ||
              !S_ISDIR(info.st_mode))
            return fail_errno(directory + "/" + e.path, EEXIST);
        }
        break;
      case Kind::link:
        ::unlinkat(at, name.c_str(), 0);
        if (::symlinkat(e.target.c_str(), at, name.c_str()) != 0)
          return fail_errno(directory + "/" + e.path, errno);
        break;
      case Kind::file: {
        // Beside, and then in its place: what was there stays until the new one is whole.
        const std::string beside = ".billow-" + random_token(8);
        const Fd fd(::openat(at, beside.c_str(),
                             O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, e.mode & 0777));
        if (!fd)
          return fail_errno(directory + "/" + e.path, errno);
        const auto fill = [&]() -> Status {
          for (std::size_t i = 0; i < e.pieces.size(); ++i) {
            const std::string bytes = BILLOW_TRY(piece(e.pieces[i]));
            if (bytes.size() != piece_size(e, i))
              return fail(
                  Code::invalid,
                  fmt::format("this tree of files is refused: \"{}\" is not as large as it says",
                              e.path));
            BILLOW_TRY_VOID(write_all(fd.get(), bytes));
          }
          ::fchmod(fd.get(), e.mode & 0777);
          return ::renameat(at, beside.c_str(), at, name.c_str()) == 0
                     ? Status{}
                     : fail_errno(directory + "/" + e.path, errno);
        };
        if (const Status filled = fill(); !filled) {
          ::unlinkat(at, beside.c_str(), 0);
          return filled;
        }
        break;
      }
    }
  }
  return {};
}

}  // namespace billow::files
