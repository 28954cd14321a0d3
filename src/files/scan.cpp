#include "files/scan.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <climits>

#include "base/crypto.h"
#include "base/file.h"
#include "base/text.h"
#include "files/ignore.h"

namespace billow::files {
namespace {

constexpr std::string_view cache_magic = "billow-scan-1\n";

struct Known {
  std::uint64_t size = 0, inode = 0;
  std::int64_t mtime_ns = 0, ctime_ns = 0;
  std::vector<Sha256> pieces;
};

// One record a file: path, size, inode, two times, digests; binary, because it is read before every job.
class Cache {
 public:
  explicit Cache(std::string path) : path_(std::move(path)) {
    if (path_.empty()) return;
    const auto text = read_file(path_, 512 << 20);
    if (!text || !text->starts_with(cache_magic)) return;
    std::string_view in = std::string_view(*text).substr(cache_magic.size());
    const auto number = [&] {
      std::uint64_t value = 0;
      if (in.size() < 8) return in = {}, std::uint64_t{0};
      std::memcpy(&value, in.data(), 8);
      in.remove_prefix(8);
      return value;
    };
    while (in.size() >= 48) {
      Known k;
      const std::uint64_t length = number();
      k.size = number(), k.inode = number();
      k.mtime_ns = static_cast<std::int64_t>(number()), k.ctime_ns = static_cast<std::int64_t>(number());
      const std::uint64_t pieces = number();
      if (length > in.size() || pieces > (in.size() - length) / 32) break;
      std::string path(in.substr(0, length));
      in.remove_prefix(length);
      k.pieces.resize(pieces);
      for (Sha256& piece : k.pieces) std::memcpy(piece.data(), in.data(), 32), in.remove_prefix(32);
      known_.emplace(std::move(path), std::move(k));
    }
  }
  const Known* find(const std::string& path) const {
    const auto found = known_.find(path);
    return found == known_.end() ? nullptr : &found->second;
  }
  void note(const std::string& path, Known known) { fresh_.emplace_back(path, std::move(known)), changed_ = true; }
  void keep(const std::string& path, const Known& known) { fresh_.emplace_back(path, known); }
  // A loss of it costs time, nothing else.
  void save() {
    if (path_.empty() || !changed_) return;
    std::string out(cache_magic);
    const auto put = [&](std::uint64_t value) { out.append(reinterpret_cast<const char*>(&value), 8); };
    for (const auto& [path, k] : fresh_) {
      put(path.size()), put(k.size), put(k.inode), put(static_cast<std::uint64_t>(k.mtime_ns)), put(static_cast<std::uint64_t>(k.ctime_ns)), put(k.pieces.size());
      out += path;
      for (const Sha256& piece : k.pieces) out.append(reinterpret_cast<const char*>(piece.data()), 32);
    }
    if (const auto slash = path_.rfind('/'); slash != std::string::npos) (void)make_directories(path_.substr(0, slash), 0700);
    (void)write_file_atomic(path_, out, 0600);
  }

 private:
  std::string path_;
  std::unordered_map<std::string, Known> known_;
  std::vector<std::pair<std::string, Known>> fresh_;
  bool changed_ = false;
};

std::int64_t nanoseconds_of(const timespec& t) { return t.tv_sec * 1'000'000'000ll + t.tv_nsec; }

// Names whose content is usually a secret.
bool looks_secret(std::string_view name) {
  return name == ".env" || name.starts_with(".env.") || name == ".netrc" || name == ".pgpass" || name == "credentials.json" || name == "id_rsa" || name == "id_ed25519" ||
         name.ends_with(".pem") || name.ends_with(".key");
}

class Walker {
 public:
  explicit Walker(const ScanOptions& options) : options_(options), cache_(options.cache) {}

  Result<Scan> run() {
    if (options_.only.empty()) {
      BILLOW_TRY_VOID(directory(""));
    } else {
      std::vector<std::string> wanted = options_.only;
      std::sort(wanted.begin(), wanted.end());
      for (const std::string& path : wanted) BILLOW_TRY_VOID(named(path));
    }
    cache_.save();
    if (out_.tree.bytes() > tree_bytes_max)
      return fail(Code::too_large, fmt::format("{} holds {}, more than {}", options_.root, format_bytes(out_.tree.bytes()), format_bytes(tree_bytes_max)), hint());
    return std::move(out_);
  }

 private:
  static std::string hint() { return "name what need not follow the job in .billowignore, or start it with --no-sync"; }
  std::string full(const std::string& path) const { return path.empty() ? options_.root : options_.root + "/" + path; }

  // A path that was asked for by name, with the directories that lead to it.
  Status named(const std::string& path) {
    for (auto slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1)) {
      const std::string parent = path.substr(0, slash);
      if (std::none_of(out_.tree.entries.begin(), out_.tree.entries.end(), [&](const Entry& e) { return e.path == parent; })) {
        struct stat info {};
        if (::lstat(full(parent).c_str(), &info) != 0) return fail_errno(path, errno);
        if (!S_ISDIR(info.st_mode)) return fail(Code::invalid, fmt::format("{} is no directory", parent));
        out_.tree.entries.push_back({.path = parent, .kind = Kind::directory, .mode = info.st_mode & 0777u});
      }
    }
    if (std::any_of(out_.tree.entries.begin(), out_.tree.entries.end(), [&](const Entry& e) { return e.path == path; })) return {};
    return entry(path);
  }

  Status directory(const std::string& path) {
    DIR* dir = ::opendir(full(path).c_str());
    if (!dir) return fail_errno(full(path), errno);
    std::vector<std::string> names;
    while (const dirent* item = ::readdir(dir))
      if (std::strcmp(item->d_name, ".") != 0 && std::strcmp(item->d_name, "..") != 0) names.emplace_back(item->d_name);
    ::closedir(dir);
    std::sort(names.begin(), names.end());
    const IgnoreRules above = rules_;
    for (const char* file : {".gitignore", ".billowignore"}) {
      struct stat info {};
      if (!options_.ignore_files || ::lstat((full(path) + "/" + file).c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;  // a pipe would never end
      if (const auto text = read_file(full(path) + "/" + file, 1 << 20)) rules_.add(path, *text);
    }
    for (const std::string& name : names) BILLOW_TRY_VOID(entry(path.empty() ? name : path + "/" + name));
    rules_ = above;
    return {};
  }

  Status entry(const std::string& path) {
    struct stat info {};
    if (::lstat(full(path).c_str(), &info) != 0) return errno == ENOENT && options_.only.empty() ? Status{} : fail_errno(full(path), errno);
    const std::string_view name = std::string_view(path).substr(path.rfind('/') + 1);
    if (options_.ignore_files && (name == ".git" || rules_.ignored(path, S_ISDIR(info.st_mode)))) return {};
    if (out_.tree.entries.size() >= tree_entries_max)
      return fail(Code::too_large, fmt::format("{} holds more than {} files", options_.root, tree_entries_max), hint());
    Entry e{.path = path, .kind = Kind::file, .mode = info.st_mode & 0777u};
    if (S_ISDIR(info.st_mode)) {
      e.kind = Kind::directory;
      out_.tree.entries.push_back(std::move(e));
      return directory(path);
    }
    if (S_ISLNK(info.st_mode)) {
      char target[PATH_MAX];
      const ssize_t n = ::readlink(full(path).c_str(), target, sizeof target);
      if (n <= 0) return {};
      e.kind = Kind::link;
      e.mode = 0777;
      e.target.assign(target, static_cast<std::size_t>(n));
      if (leads_out(path, e.target)) {
        out_.warnings.push_back(fmt::format("{} links out of the directory and is left out", path));
        return {};
      }
      out_.tree.entries.push_back(std::move(e));
      return {};
    }
    if (!S_ISREG(info.st_mode)) return {};  // sockets, pipes and devices stay
    if (options_.ignore_files && looks_secret(name)) out_.warnings.push_back(fmt::format("{} may hold secrets and is uploaded (name it in .billowignore to keep it here)", path));
    e.size = static_cast<std::uint64_t>(info.st_size);
    BILLOW_TRY_VOID(digest(e, info));
    out_.tree.entries.push_back(std::move(e));
    return {};
  }

  static bool leads_out(std::string_view path, std::string_view target) {
    if (target.starts_with('/')) return true;
    std::int64_t depth = static_cast<std::int64_t>(std::count(path.begin(), path.end(), '/'));
    for (const std::string& part : split(target, '/')) {
      if (part == "..") --depth;
      else if (!part.empty() && part != ".") ++depth;
      if (depth < 0) return true;
    }
    return false;
  }

  Status digest(Entry& e, const struct stat& info) {
    const Known now{e.size, info.st_ino, nanoseconds_of(info.st_mtim), nanoseconds_of(info.st_ctim), {}};
    const Known* known = cache_.find(e.path);
    if (known && known->size == now.size && known->inode == now.inode && known->mtime_ns == now.mtime_ns && known->ctime_ns == now.ctime_ns) {
      e.pieces = known->pieces;
      cache_.keep(e.path, *known);
    } else if (e.size > 0) {
      const Fd fd(::open(full(e.path).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
      if (!fd) return fail_errno(full(e.path), errno);
      buffer_.resize(piece_bytes);
      std::uint64_t total = 0;
      while (true) {
        std::size_t filled = 0;
        for (ssize_t got; filled < piece_bytes && (got = ::read(fd.get(), buffer_.data() + filled, piece_bytes - filled)) > 0;) filled += static_cast<std::size_t>(got);
        if (filled == 0) break;
        e.pieces.push_back(sha256({buffer_.data(), filled}));
        total += filled;
        if (filled < piece_bytes) break;
      }
      e.size = total;  // as it was read: a file that grows is taken as it was
      Known fresh = now;
      fresh.pieces = e.pieces;
      // A file written a moment ago may change again without a new time: it is looked at again next time.
      const bool settled = system_clock().wall().ns - now.mtime_ns > 2'000'000'000ll && total == now.size;
      if (settled) cache_.note(e.path, std::move(fresh));
    }
    for (std::size_t i = 0; i < e.pieces.size(); ++i)
      out_.sources.try_emplace(e.pieces[i], Source{full(e.path), i * std::uint64_t{piece_bytes}, static_cast<std::uint32_t>(piece_size(e, i))});
    return {};
  }

  const ScanOptions& options_;
  Cache cache_;
  IgnoreRules rules_;
  Scan out_;
  std::string buffer_;
};

}  // namespace

Result<Scan> scan(const ScanOptions& options) { return Walker(options).run(); }

Result<std::string> read_piece(const Source& source, const Sha256& digest) {
  const Fd fd(::open(source.path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd) return fail_errno(source.path, errno);
  std::string out(source.size, '\0');
  std::size_t done = 0;
  for (ssize_t got; done < out.size() && (got = ::pread(fd.get(), out.data() + done, out.size() - done, static_cast<off_t>(source.offset + done))) > 0;) done += static_cast<std::size_t>(got);
  if (done != out.size() || sha256(out) != digest) return fail(Code::conflict, fmt::format("{} changed while it was read", source.path), "try again when nothing writes to it");
  return out;
}

Status write_tree(const std::string& directory, const Tree& tree, const std::function<Result<std::string>(const Sha256&)>& piece) {
  const Fd root(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root) return fail_errno(directory, errno);
  // Directories are opened one below the other without following links, so nothing that somebody swaps meanwhile leads elsewhere.
  std::string open_path;
  Fd open_dir(::dup(root.get()));
  const auto parent_of = [&](const std::string& path, std::string& name) -> Result<int> {
    const auto slash = path.rfind('/');
    const std::string parent = slash == std::string::npos ? "" : path.substr(0, slash);
    name = slash == std::string::npos ? path : path.substr(slash + 1);
    if (parent == open_path) return open_dir.get();
    Fd at(::dup(root.get()));
    if (!parent.empty())
      for (const std::string& part : split(parent, '/')) {
        Fd next(::openat(at.get(), part.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
        if (!next) return fail_errno(directory + "/" + parent, errno);
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
          if (errno != EEXIST || ::fstatat(at, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(info.st_mode)) return fail_errno(directory + "/" + e.path, EEXIST);
        }
        break;
      case Kind::link:
        ::unlinkat(at, name.c_str(), 0);
        if (::symlinkat(e.target.c_str(), at, name.c_str()) != 0) return fail_errno(directory + "/" + e.path, errno);
        break;
      case Kind::file: {
        // Beside, and then in its place: what was there stays until the new one is whole.
        const std::string beside = ".billow-" + random_token(8);
        const Fd fd(::openat(at, beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, e.mode & 0777));
        if (!fd) return fail_errno(directory + "/" + e.path, errno);
        const auto fill = [&]() -> Status {
          for (std::size_t i = 0; i < e.pieces.size(); ++i) {
            const std::string bytes = BILLOW_TRY(piece(e.pieces[i]));
            if (bytes.size() != piece_size(e, i)) return fail(Code::invalid, fmt::format("this tree of files is refused: \"{}\" is not as large as it says", e.path));
            BILLOW_TRY_VOID(write_all(fd.get(), bytes));
          }
          ::fchmod(fd.get(), e.mode & 0777);
          return ::renameat(at, beside.c_str(), at, name.c_str()) == 0 ? Status{} : fail_errno(directory + "/" + e.path, errno);
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
