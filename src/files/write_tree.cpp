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
  TreeWriter(const std::string& directory, Fd root, const TreeSource& source)
      : directory_(directory),
        root_(std::move(root)),
        parent_(::dup(root_.get())),
        source_(source) {
    if (source.alone) {
      mask_ = ::umask(077);
      ::umask(mask_);
    }
  }

  bool is_large(const Entry& e) const {
    return source_.fill_large && e.kind == Kind::file && e.size >= source_.large_bytes_min;
  }

  Status write_large(const Tree& tree) {
    for (const Entry& e : tree.entries) {
      if (!is_large(e))
        continue;
      const auto slash = e.path.rfind('/');
      BILLOW_TRY_VOID(open_parent(slash == std::string::npos ? "" : e.path.substr(0, slash)));
      pending_.push_back({&e, {}, Fd(::dup(parent_.get()))});
      BILLOW_TRY_VOID(create(pending_.back().file, e));
      if (pending_.size() >= source_.large_at_once)
        BILLOW_TRY_VOID(fill());
    }
    return pending_.empty() ? Status{} : fill();
  }

  ~TreeWriter() {
    for (Pending& one : pending_)
      discard(one.file, one.parent.get());
  }

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
        return is_large(e) ? Status{} : write_file(e);
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

  struct NewFile {
    Fd fd;
    std::string name, temporary;  // the same: it has its name already
  };
  struct Pending {
    const Entry* entry = nullptr;
    NewFile file;
    Fd parent;
  };

  // Under a temporary name first: an existing file stays until the new one is complete.
  Status create(NewFile& file, const Entry& e) {
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    file.name = e.path.substr(e.path.rfind('/') + 1);
    file.temporary = file.name;
    if (source_.alone)
      file.fd = Fd(::openat(parent_.get(), file.name.c_str(), flags, e.mode & 0777));
    if (!file.fd) {
      file.temporary = ".billow-" + random_token(8);
      file.fd = Fd(::openat(parent_.get(), file.temporary.c_str(), flags, e.mode & 0777));
    }
    return file.fd ? Status{} : failed(e, errno);
  }
  Status complete(NewFile& file, int parent, const Entry& e) {
    if (!source_.alone || (e.mode & mask_) != 0)
      ::fchmod(file.fd.get(), e.mode & 0777);
    if (file.temporary != file.name &&
        ::renameat(parent, file.temporary.c_str(), parent, file.name.c_str()) != 0)
      return failed(e, errno);
    file.temporary.clear();
    return {};
  }
  static void discard(NewFile& file, int parent) {
    if (file.fd && !file.temporary.empty())
      ::unlinkat(parent, file.temporary.c_str(), 0);
  }

  Status write_file(const Entry& e) {
    NewFile file;
    BILLOW_TRY_VOID(create(file, e));
    Status written = write_content(e, file.fd.get());
    if (written)
      written = complete(file, parent_.get(), e);
    if (!written)
      discard(file, parent_.get());
    return written;
  }

  Status fill() {
    std::vector<int> descriptors;
    for (const Pending& one : pending_)
      descriptors.push_back(one.file.fd.get());
    BILLOW_TRY_VOID(source_.fill_large(descriptors));
    for (Pending& one : pending_)
      BILLOW_TRY_VOID(complete(one.file, one.parent.get(), *one.entry));
    pending_.clear();
    return {};
  }

  Status write_content(const Entry& e, int fd) {
    for (std::size_t i = 0; i < e.pieces.size(); ++i) {
      const std::string bytes = BILLOW_TRY(source_.piece(e.pieces[i]));
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
  const TreeSource& source_;
  mode_t mask_ = 0;
  std::vector<Pending> pending_;
};

}  // namespace

Status write_tree(const std::string& directory, const Tree& tree, const TreeSource& source) {
  Fd root(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root)
    return fail_errno(directory, errno);
  TreeWriter writer(directory, std::move(root), source);
  for (const Entry& e : tree.entries)
    BILLOW_TRY_VOID(writer.write(e));
  return writer.write_large(tree);
}

}  // namespace billow::files
