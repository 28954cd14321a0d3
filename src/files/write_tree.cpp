// Writes a tree as files. Neither the list nor concurrent changes in the directory can make it
// write anywhere else.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crypto.h"
#include "base/file.h"
#include "base/text.h"
#include "files/scan.h"

namespace billow::files {
namespace {

class TreeWriter {
 public:
  using Piece = std::function<Result<std::string>(const Sha256&)>;
  TreeWriter(const std::string& directory, Fd root, const Piece& piece)
      : directory_(directory), root_(std::move(root)), parent_(::dup(root_.get())), piece_(piece) {}

  Status write(const Entry& e) {
    const auto slash = e.path.rfind('/');
    const std::string name = slash == std::string::npos ? e.path : e.path.substr(slash + 1);
    BILLOW_TRY_VOID(open_parent(slash == std::string::npos ? "" : e.path.substr(0, slash)));
    switch (e.kind) {
      case Kind::directory:
        return write_directory(e, name);
      case Kind::link:
        ::unlinkat(parent_.get(), name.c_str(), 0);
        if (::symlinkat(e.target.c_str(), parent_.get(), name.c_str()) != 0)
          return failed(e, errno);
        return {};
      case Kind::file:
        return write_file(e, name);
    }
    return {};
  }

 private:
  std::unexpected<Error> failed(const Entry& e, int error) const {
    return fail_errno(directory_ + "/" + e.path, error);
  }

  // Directories are opened one below the other without following links, so that a directory swapped
  // for a link in the meantime does not lead elsewhere.
  Status open_parent(const std::string& path) {
    if (path == parent_path_)
      return {};
    Fd at(::dup(root_.get()));
    if (!path.empty())
      for (const std::string& part : split(path, '/')) {
        Fd next(::openat(at.get(), part.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
        if (!next)
          return fail_errno(directory_ + "/" + path, errno);
        at = std::move(next);
      }
    parent_ = std::move(at);
    parent_path_ = path;
    return {};
  }

  Status write_directory(const Entry& e, const std::string& name) {
    if (::mkdirat(parent_.get(), name.c_str(), (e.mode & 0777) | 0700) == 0)
      return {};
    struct stat info {};
    if (errno != EEXIST ||
        ::fstatat(parent_.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISDIR(info.st_mode))
      return failed(e, EEXIST);
    return {};
  }

  // Under a temporary name first: the existing file stays until the new one is complete.
  Status write_file(const Entry& e, const std::string& name) {
    const std::string temporary = ".billow-" + random_token(8);
    const Fd fd(::openat(parent_.get(), temporary.c_str(),
                         O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, e.mode & 0777));
    if (!fd)
      return failed(e, errno);
    Status written = write_content(e, fd.get());
    ::fchmod(fd.get(), e.mode & 0777);
    if (written && ::renameat(parent_.get(), temporary.c_str(), parent_.get(), name.c_str()) != 0)
      written = failed(e, errno);
    if (!written)
      ::unlinkat(parent_.get(), temporary.c_str(), 0);
    return written;
  }

  Status write_content(const Entry& e, int fd) {
    for (std::size_t i = 0; i < e.pieces.size(); ++i) {
      const std::string bytes = BILLOW_TRY(piece_(e.pieces[i]));
      if (bytes.size() != piece_size(e, i))
        return fail(
            Code::invalid,
            fmt::format("this tree of files is rejected: \"{}\" does not have its size", e.path));
      BILLOW_TRY_VOID(write_all(fd, bytes));
    }
    return {};
  }

  const std::string& directory_;
  Fd root_;
  Fd parent_;  // the directory of the current entry
  std::string parent_path_;
  const Piece& piece_;
};

}  // namespace

Status write_tree(const std::string& directory,
                  const Tree& tree,
                  const std::function<Result<std::string>(const Sha256&)>& piece) {
  Fd root(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root)
    return fail_errno(directory, errno);
  TreeWriter writer(directory, std::move(root), piece);
  for (const Entry& e : tree.entries)
    BILLOW_TRY_VOID(writer.write(e));
  return {};
}

}  // namespace billow::files
