#include "store/data_dir.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>

#include "base/clock.h"
#include "base/crypto.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/text.h"

namespace billow {
namespace {

std::unexpected<Error> fail_file(const std::string& what, int error_number) {
  if (error_number == ENOSPC || error_number == EDQUOT) {
    return fail(Code::storage_full, fmt::format("no space left on the disk of {}", what),
                "free some space there");
  }
  return fail_errno(what, error_number);
}

Status write_synced(const std::string& path, std::string_view head, std::string_view body) {
  Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!fd)
    return fail_file(path, errno);
  for (std::string_view part : {head, body}) {
    while (!part.empty()) {
      const ssize_t n = ::write(fd.get(), part.data(), part.size());
      if (n < 0 && errno == EINTR)
        continue;
      if (n < 0)
        return fail_file(path, errno);
      part.remove_prefix(static_cast<std::size_t>(n));
    }
  }
  if (::fsync(fd.get()) != 0)
    return fail_file(path, errno);
  return {};
}

constexpr std::string_view snapshot_magic = "billow-snapshot 1";

Result<Snapshot> parse_snapshot(Seq seq, std::string file) {
  const std::size_t line = file.find('\n');
  const auto words =
      split(std::string_view(file).substr(0, line == std::string::npos ? 0 : line), ' ');
  const std::string_view body =
      line == std::string::npos ? std::string_view() : std::string_view(file).substr(line + 1);
  const std::string expected = fmt::format("{} {} {}", snapshot_magic, seq, body.size());
  if (words.size() != 5 ||
      fmt::format("{} {} {} {}", words[0], words[1], words[2], words[3]) != expected) {
    return fail(Code::internal, "its header does not fit its content");
  }
  if (words[4] != sha256_hex(body))
    return fail(Code::internal, "its checksum does not fit its content");
  file.erase(0, line + 1);
  return Snapshot{seq, std::move(file)};
}

}  // namespace

Status sync_directory(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd)
    return fail_file(path, errno);
  if (::fsync(fd.get()) != 0)
    return fail_file(path, errno);
  return {};
}

Result<Fd> lock_data_dir(const std::string& data_dir) {
  const std::string path = data_dir + "/lock";
  Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd)
    return fail_file(path, errno);
  // Commands that check whether a head is alive hold it for a moment (base/lock_file.h).
  constexpr Duration patience = milliseconds(200);
  const SteadyTime deadline = system_clock().steady() + patience;
  while (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK)
      return fail_file(path, errno);
    if (system_clock().steady() < deadline) {
      ::usleep(2000);
      continue;
    }
    char text[32] = {};
    const ssize_t n = ::pread(fd.get(), text, sizeof text - 1, 0);
    const std::string owner(trim(std::string_view(text, n > 0 ? static_cast<std::size_t>(n) : 0)));
    return fail(Code::conflict,
                fmt::format("data directory {} is in use by another head (pid {})", data_dir,
                            owner.empty() ? "unknown" : owner),
                "stop it with `billow down`, or use --data with another directory");
  }
  const std::string pid = fmt::format("{}\n", ::getpid());
  // The pid is only information for people; on a full disk the lock works without it.
  if (::ftruncate(fd.get(), 0) != 0 || ::pwrite(fd.get(), pid.data(), pid.size(), 0) < 0) {
    log_warn("could not write the pid to {}: {}", path, std::strerror(errno));
  }
  return fd;
}

Status Ballast::make() {
  if (bytes_ == 0) {
    held_ = true;
    return {};
  }
  Fd fd(::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  if (!fd)
    return fail_file(path_, errno);
  struct stat info = {};
  const bool there = ::fstat(fd.get(), &info) == 0 &&
                     static_cast<std::uint64_t>(info.st_size) == bytes_ &&
                     static_cast<std::uint64_t>(info.st_blocks) * 512 >= bytes_;
  if (!there) {
    if (const int error = ::posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes_)); error != 0) {
      ::unlink(path_.c_str());
      return fail_file(path_, error);
    }
    if (::ftruncate(fd.get(), static_cast<off_t>(bytes_)) != 0)
      return fail_file(path_, errno);
  }
  held_ = true;
  return {};
}
void Ballast::release() {
  // Truncated first: this frees the space even if another process has the file open.
  if (::truncate(path_.c_str(), 0) != 0 && errno != ENOENT)
    log_warn("could not release {}: {}", path_, std::strerror(errno));
  ::unlink(path_.c_str());
  held_ = false;
}
bool Ballast::space_again() const {
  struct statvfs info = {};
  const std::string dir = path_.substr(0, path_.rfind('/'));
  if (::statvfs(dir.c_str(), &info) != 0)
    return false;
  const std::uint64_t free_bytes = static_cast<std::uint64_t>(info.f_bavail) * info.f_frsize;
  return free_bytes >= bytes_ + bytes_ / 2;
}

std::string Snapshots::path(Seq seq) const {
  return fmt::format("{}/{:020}.snap", dir_, seq);
}

std::vector<Seq> Snapshots::list() const {
  std::vector<Seq> found;
  DIR* dir = ::opendir(dir_.c_str());
  if (!dir)
    return found;
  while (const dirent* entry = ::readdir(dir)) {
    const std::string_view name = entry->d_name;
    if (name.size() != 25 || !name.ends_with(".snap"))
      continue;
    Seq seq = 0;
    if (std::from_chars(name.data(), name.data() + 20, seq).ptr == name.data() + 20)
      found.push_back(seq);
  }
  ::closedir(dir);
  std::sort(found.rbegin(), found.rend());
  return found;
}

Status Snapshots::save(Seq seq, std::string_view bytes) const {
  BILLOW_TRY_VOID(make_directories(dir_, 0700));
  const std::string temporary = fmt::format("{}/saving", dir_);
  const std::string head =
      fmt::format("{} {} {} {}\n", snapshot_magic, seq, bytes.size(), sha256_hex(bytes));
  if (auto written = write_synced(temporary, head, bytes); !written) {
    ::unlink(temporary.c_str());
    return pass(std::move(written.error()), "saving a snapshot");
  }
  if (::rename(temporary.c_str(), path(seq).c_str()) != 0)
    return fail_file(path(seq), errno);
  BILLOW_TRY_VOID(sync_directory(dir_));
  const auto kept = list();
  for (std::size_t i = 2; i < kept.size(); ++i)
    ::unlink(path(kept[i]).c_str());
  return {};
}

bool Snapshots::intact(Seq seq) const {
  auto file = read_file(path(seq), limits::snapshot_bytes_max);
  return file && parse_snapshot(seq, std::move(*file));
}

Result<std::optional<Snapshot>> Snapshots::load(Seq last) const {
  for (const Seq seq : list()) {
    if (seq > last) {
      log_warn("snapshot {} is ahead of the journal (which ends at {}): passed over", path(seq),
               last);
      continue;
    }
    auto file = read_file(path(seq), limits::snapshot_bytes_max);
    auto snapshot = file ? parse_snapshot(seq, std::move(*file))
                         : Result<Snapshot>(pass(std::move(file.error())));
    if (snapshot)
      return std::optional(std::move(*snapshot));
    log_warn("snapshot {} is not usable ({}): an older one and more of the journal take its place",
             path(seq), snapshot.error().message);
  }
  return std::optional<Snapshot>();
}

}  // namespace billow
