#include "files/scan.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstring>
#include <mutex>
#include <thread>

#include "base/crypto.h"
#include "base/file.h"
#include "base/platform.h"
#include "base/text.h"
#include "files/ignore.h"
#include "files/list_ahead.h"
#include "files/scan_cache.h"

namespace billow::files {
namespace {

constexpr unsigned hashing_threads_max = 4;

// Names whose content is usually a secret.
bool looks_secret(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  for (const std::string_view sample : {".example", ".sample", ".template", ".dist"})
    if (name.ends_with(sample))
      return false;
  for (const std::string_view one :
       {".env", ".envrc", ".netrc", ".pgpass", ".git-credentials", ".pypirc", ".htpasswd",
        "credentials.json", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519"})
    if (name == one)
      return true;
  for (const std::string_view ending : {".pem", ".key", ".p12", ".pfx", ".kdbx"})
    if (name.ends_with(ending))
      return true;
  return name.starts_with(".env.") || path.ends_with(".aws/credentials") ||
         path.ends_with(".docker/config.json") || path.ends_with(".kube/config");
}

// Up to `size` bytes, fewer only at the end of the file. A failed read is an error, never the end.
Result<std::size_t> read_up_to(int fd, char* into, std::size_t size, const std::string& path) {
  std::size_t filled = 0;
  while (filled < size) {
    const ssize_t got = ::read(fd, into + filled, size - filled);
    if (got == 0)
      break;
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      return fail_errno(path, errno);
    filled += static_cast<std::size_t>(got);
  }
  return filled;
}

// Checks sizes first and reads afterwards, so that a tree that is too large fails at once.
class Walker {
 public:
  explicit Walker(const ScanOptions& options) : options_(options), cache_(options.cache) {}

  Result<Scan> run() {
    if (options_.only.empty()) {
      ahead_ = list_ahead(options_.root, options_.ignore_files);
      BILLOW_TRY_VOID(directory(""));
      ahead_.clear();
    } else {
      std::vector<std::string> wanted = options_.only;
      std::sort(wanted.begin(), wanted.end());
      for (const std::string& path : wanted)
        BILLOW_TRY_VOID(named(path));
    }
    if (out_.tree.bytes() > tree_bytes_max)
      return fail(Code::too_large,
                  fmt::format("{} has {}; the limit is {}", options_.root,
                              format_bytes(out_.tree.bytes()), format_bytes(tree_bytes_max)),
                  hint());
    BILLOW_TRY_VOID(digest_all());
    cache_.save();
    return std::move(out_);
  }

 private:
  struct Unread {
    std::size_t entry = 0;
    Known now;
    bool gone = false;
  };
  static std::string hint() { return "exclude files in .billowignore, or use --no-sync"; }
  std::string full(const std::string& path) const {
    return path.empty() ? options_.root : options_.root + "/" + path;
  }

  // A path that was named explicitly, with its parent directories.
  Status named(const std::string& path) {
    for (auto slash = path.find('/'); slash != std::string::npos;
         slash = path.find('/', slash + 1)) {
      const std::string parent = path.substr(0, slash);
      if (std::none_of(out_.tree.entries.begin(), out_.tree.entries.end(),
                       [&](const Entry& e) { return e.path == parent; })) {
        struct stat info {};
        if (::lstat(full(parent).c_str(), &info) != 0)
          return fail_errno(path, errno);
        if (!S_ISDIR(info.st_mode))
          return fail(Code::invalid, fmt::format("{} is not a directory", parent));
        out_.tree.entries.push_back(
            {.path = parent, .kind = Kind::directory, .mode = info.st_mode & 0777u});
      }
    }
    if (std::any_of(out_.tree.entries.begin(), out_.tree.entries.end(),
                    [&](const Entry& e) { return e.path == path; }))
      return {};
    return entry({.name = full(path)}, path);
  }

  Status directory(const std::string& path) {
    Listing fresh;
    const auto ahead = ahead_.find(path);
    if (ahead == ahead_.end())
      if (const int error = list_directory(full(path), fresh)) {
        // Removed after the directory above it was listed, like a file in `digest`.
        if (error != ENOENT || path.empty() || !options_.only.empty())
          return fail_errno(full(path), error);
        out_.tree.entries.pop_back();
        return {};
      }
    const Listing& listed = ahead == ahead_.end() ? fresh : ahead->second;
    const IgnoreRules above = rules_;
    for (const char* file : ignore_file_names) {
      const auto at = std::ranges::lower_bound(listed, std::string_view(file), {}, &Listed::name);
      // Reading a pipe might never end.
      if (!options_.ignore_files || at == listed.end() || at->name != file || !S_ISREG(at->mode))
        continue;
      if (const auto text = read_file(full(path) + "/" + file, ignore_file_bytes_max))
        rules_.add(path, *text);
    }
    for (const Listed& one : listed)
      BILLOW_TRY_VOID(entry(one, path.empty() ? one.name : path + "/" + one.name));
    rules_ = above;
    return {};
  }

  Status entry(const Listed& listed, const std::string& path) {
    Listed asked;
    const Listed& info = listed.known ? listed : asked;
    if (!listed.known)
      if (const int error = look_at(AT_FDCWD, full(path).c_str(), asked))
        return error == ENOENT && options_.only.empty() ? Status{} : fail_errno(full(path), error);
    const auto verdict = options_.ignore_files ? rules_.verdict(path, S_ISDIR(info.mode))
                                               : IgnoreRules::Verdict::taken;
    if (verdict == IgnoreRules::Verdict::left_out ||
        (options_.ignore_files && (listed.name == ".git" || is_billows_own(path))))
      return {};
    if (out_.tree.entries.size() >= tree_entries_max)
      return fail(Code::too_large,
                  fmt::format("{} has more than {} files", options_.root, tree_entries_max),
                  hint());
    Entry e{.path = path, .kind = Kind::file, .mode = info.mode & 0777u};
    if (S_ISDIR(info.mode)) {
      e.kind = Kind::directory;
      out_.tree.entries.push_back(std::move(e));
      return directory(path);
    }
    if (S_ISLNK(info.mode)) {
      char target[PATH_MAX];
      const ssize_t n = ::readlink(full(path).c_str(), target, sizeof target);
      if (n <= 0)
        return {};
      e.kind = Kind::link;
      e.mode = 0777;
      e.target.assign(target, static_cast<std::size_t>(n));
      if (!link_stays_inside(path, e.target) && !is_interpreter_link(path, e.target)) {
        out_.warnings.push_back(
            fmt::format("{} points outside the directory and is left out", path));
        return {};
      }
      out_.tree.entries.push_back(std::move(e));
      return {};
    }
    if (!S_ISREG(info.mode))
      return {};  // sockets, pipes and devices are left out
    if (verdict == IgnoreRules::Verdict::none && looks_secret(path)) {
      out_.warnings.push_back(fmt::format(
          "{} may contain secrets and is left out (to include it, add !{} to .billowignore)", path,
          path));
      return {};
    }
    e.size = info.size;
    Known now{e.size, info.inode, info.mtime_ns, info.ctime_ns, {}};
    if (e.size > 0 && cache_.find(path, now))
      e.pieces = std::move(now.pieces);
    else if (e.size > 0)
      unread_.push_back({out_.tree.entries.size(), std::move(now), false});
    out_.tree.entries.push_back(std::move(e));
    return {};
  }

  // False: the files are to be read here.
  Result<bool> digest_elsewhere() {
    if (!options_.digester || unread_.empty())
      return false;
    std::vector<Undigested> list(unread_.size());
    for (std::size_t i = 0; i < list.size(); ++i) {
      const Known& now = unread_[i].now;
      list[i] = {
          full(out_.tree.entries[unread_[i].entry].path), now.size, now.mtime_ns, now.ctime_ns, {}};
    }
    if (!BILLOW_TRY(options_.digester(list)))
      return false;
    for (std::size_t i = 0; i < list.size(); ++i)
      out_.tree.entries[unread_[i].entry].pieces = std::move(list[i].pieces);
    return true;
  }

  Status digest_all() {
    const bool nothing = options_.digester && unread_.empty();
    const bool elsewhere = nothing || BILLOW_TRY(digest_elsewhere());
    if (!elsewhere)
      BILLOW_TRY_VOID(digest_here());
    note_digests();
    if (!elsewhere)
      note_sources();
    return {};
  }

  Status digest_here() {
    std::uint64_t bytes = 0;
    for (const Unread& u : unread_)
      bytes += u.now.size;
    const auto threads = static_cast<unsigned>(std::min<std::uint64_t>(
        {hashing_threads_max, std::max(1u, std::thread::hardware_concurrency()),
         bytes / (1 << 20) + 1, unread_.size()}));
    std::atomic<std::size_t> next{0};
    std::mutex mutex;
    Status trouble;
    const auto work = [&] {
      std::string buffer;
      for (std::size_t i; (i = next++) < unread_.size();) {
        const Status done = digest(unread_[i], buffer);
        if (done)
          continue;
        std::lock_guard lock(mutex);
        if (trouble)
          trouble = done;
        next = unread_.size();
      }
    };
    std::vector<std::thread> others;
    for (unsigned i = 1; i < threads; ++i)
      others.emplace_back(work);
    work();
    for (std::thread& thread : others)
      thread.join();
    return trouble;
  }

  void note_digests() {
    bool gone = false;
    for (Unread& u : unread_) {
      Entry& e = out_.tree.entries[u.entry];
      if (u.gone) {
        e.path.clear();
        gone = true;
        continue;
      }
      // A file written just now may change again without a new time: it is read again next time.
      const bool settled =
          system_clock().wall().ns - u.now.mtime_ns > 2'000'000'000ll && e.size == u.now.size;
      u.now.pieces = e.pieces;
      if (settled)
        cache_.note(e.path, std::move(u.now));
    }
    if (gone)
      std::erase_if(out_.tree.entries, [](const Entry& e) { return e.path.empty(); });
  }

  void note_sources() {
    out_.sources.reserve(out_.tree.entries.size());
    for (const Entry& e : out_.tree.entries)
      for (std::size_t i = 0; i < e.pieces.size(); ++i)
        out_.sources.try_emplace(e.pieces[i], Source{full(e.path), i * std::uint64_t{piece_bytes},
                                                     static_cast<std::uint32_t>(piece_size(e, i))});
  }

  // Only as much as the file had when it was listed: a growing file would never end.
  Status digest(Unread& u, std::string& buffer) {
    Entry& e = out_.tree.entries[u.entry];
    const std::string path = full(e.path);
    const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!fd && errno == ENOENT && options_.only.empty()) {
      u.gone = true;
      return Status{};
    }
    if (!fd)
      return fail_errno(path, errno);
    std::uint64_t total = 0;
    while (total < u.now.size) {
      const auto want =
          static_cast<std::size_t>(std::min<std::uint64_t>(piece_bytes, u.now.size - total));
      if (buffer.size() < want)
        buffer.resize(want);
      const std::size_t filled = BILLOW_TRY(read_up_to(fd.get(), buffer.data(), want, path));
      if (filled > 0)
        e.pieces.push_back(sha256({buffer.data(), filled}));
      total += filled;
      if (filled < want)
        break;
    }
    e.size = total;
    return {};
  }

  const ScanOptions& options_;
  ScanCache cache_;
  std::unordered_map<std::string, Listing> ahead_;
  IgnoreRules rules_;
  Scan out_;
  std::vector<Unread> unread_;
};

}  // namespace

Result<Scan> scan(const ScanOptions& options) {
  return Walker(options).run();
}

Result<std::vector<std::string>> list(const std::string& root, const std::string& path) {
  std::vector<std::string> out, directories;
  const auto look = [&](const std::string& at) -> Status {
    struct stat info {};
    if (::lstat((root + "/" + at).c_str(), &info) != 0)
      return fail_errno(at, errno);
    if (S_ISREG(info.st_mode))
      out.push_back(at);
    else if (S_ISDIR(info.st_mode))
      directories.push_back(at);
    if (out.size() > tree_entries_max)
      return fail(Code::too_large,
                  fmt::format("{} has more than {} files", path, tree_entries_max));
    return {};
  };
  BILLOW_TRY_VOID(look(path));
  while (!directories.empty()) {
    const std::string directory = std::move(directories.back());
    directories.pop_back();
    DIR* dir = ::opendir((root + "/" + directory).c_str());
    if (!dir)
      return fail_errno(directory, errno);
    Status fine;
    while (const dirent* item = ::readdir(dir))
      if (fine && std::strcmp(item->d_name, ".") != 0 && std::strcmp(item->d_name, "..") != 0)
        fine = look(directory + "/" + item->d_name);
    ::closedir(dir);
    BILLOW_TRY_VOID(fine);
  }
  std::sort(out.begin(), out.end());
  return out;
}

Result<std::string> read_piece(const Source& source, const Sha256& digest) {
  const Fd fd(::open(source.path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd)
    return fail_errno(source.path, errno);
  std::string out(source.size, '\0');
  if (source.offset > 0 && ::lseek(fd.get(), static_cast<off_t>(source.offset), SEEK_SET) < 0)
    return fail_errno(source.path, errno);
  const std::size_t done = BILLOW_TRY(read_up_to(fd.get(), out.data(), out.size(), source.path));
  if (done != out.size() || sha256(out) != digest)
    return fail(Code::conflict, fmt::format("{} changed while it was read", source.path),
                "try again when no program writes to it");
  return out;
}

}  // namespace billow::files
