#include "agent/isolate/own_place.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/crypto.h"
#include "base/log.h"
#include "base/text.h"

namespace billow::agent {
namespace {

constexpr int tries_max = 8;
constexpr std::size_t name_bytes = 6;  // podman takes paths of 50 characters at most
constexpr mode_t writable_by_others = 022;
constexpr int opening = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

}  // namespace

Result<Fd> open_own_directory(const std::string& path) {
  Fd fd(::open(path.c_str(), opening));
  if (!fd)
    return fail_errno(path, errno);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0)
    return fail_errno(path, errno);
  if (info.st_uid != ::geteuid())
    return fail(Code::conflict,
                fmt::format("{} belongs to uid {}, and this agent runs as uid {}", path,
                            info.st_uid, ::geteuid()),
                "remove it, or run the agent as its owner");
  if ((info.st_mode & writable_by_others) != 0)
    return fail(Code::conflict,
                fmt::format("other users can write {} (mode {:04o})", path, info.st_mode & 07777),
                "check its content, then run chmod go-w on it");
  return fd;
}

namespace {

// Directories in `under` stay what they are: it belongs to the system or to us, and if others can
// write it, its sticky bit keeps them from replacing what is ours.
Status check_parent(const std::string& under) {
  struct stat info {
  }, root{};
  if (::stat(under.c_str(), &info) != 0)
    return fail_errno(under, errno);
  // In a user namespace the system's user has another number: the one / belongs to.
  const bool trusted = info.st_uid == 0 || info.st_uid == ::geteuid() ||
                       (::stat("/", &root) == 0 && info.st_uid == root.st_uid);
  if (!S_ISDIR(info.st_mode) || !trusted)
    return fail(Code::conflict,
                fmt::format("{} must be a directory that belongs to root, not to uid {}", under,
                            info.st_uid),
                fmt::format("run chown root {}", under));
  if ((info.st_mode & writable_by_others) != 0 && (info.st_mode & S_ISVTX) == 0)
    return fail(Code::conflict,
                fmt::format("users can replace each other's files in {} (mode {:04o})", under,
                            info.st_mode & 07777),
                fmt::format("run chmod +t {}", under));
  return {};
}

std::string record_path(const OwnPlace::Wanted& wanted) {
  std::string name = "place" + wanted.under;
  std::replace(name.begin(), name.end(), '/', '-');
  return wanted.data_dir + "/" + name;
}

}  // namespace

Result<OwnPlace> OwnPlace::at(const std::string& path) {
  Fd fd = BILLOW_TRY(open_own_directory(path));
  (void)::flock(fd.get(), LOCK_SH | LOCK_NB);
  return OwnPlace(path, std::move(fd));
}

void OwnPlace::leave() const {
  ::rmdir(path_.c_str());
}

Result<OwnPlace> OwnPlace::open(const Wanted& wanted) {
  BILLOW_TRY_VOID(check_parent(wanted.under));
  const std::string file = record_path(wanted);
  std::string known = wanted.earlier;
  if (const auto stored = read_file(file, 256))
    known = trim(*stored);
  if (known.starts_with(wanted.under + "/billow-")) {
    if (auto found = at(known))
      return found;
    else if (file_exists(known))
      log_warn("{}; using another directory", found.error().message);
  }
  for (int i = 0; i < tries_max; ++i) {
    const std::string path =
        fmt::format("{}/billow-{}", wanted.under, hex(random_bytes(name_bytes)));
    if (::mkdir(path.c_str(), 0700) != 0) {
      if (errno == EEXIST)
        continue;
      return fail_errno(path, errno);
    }
    auto made = BILLOW_TRY(at(path));
    if (::fchmod(made.fd_.get(), 0711) != 0)
      return fail_errno(path, errno);  // regardless of the umask
    BILLOW_TRY_VOID(write_file_atomic(file, path + "\n", 0600));
    return made;
  }
  return fail(
      Code::conflict,
      fmt::format("a private directory for this agent could not be created in {}", wanted.under));
}

Result<Fd> OwnPlace::directory(const Directory& wanted) const {
  const auto parts = split(wanted.relative, '/');
  Fd above(::fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0));
  if (!above)
    return fail_errno(path_, errno);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const bool last = i + 1 == parts.size();
    const bool made = ::mkdirat(above.get(), parts[i].c_str(), 0700) == 0;
    if (!made && (errno != EEXIST || (last && wanted.existing == If::exists_fail)))
      return fail_errno(below(wanted.relative), errno);
    Fd next(::openat(above.get(), parts[i].c_str(), opening));
    struct stat info {};
    if (!next || ::fstat(next.get(), &info) != 0)
      return fail_errno(below(wanted.relative), errno);
    if (!last && (info.st_uid != ::geteuid() || (info.st_mode & writable_by_others) != 0))
      return fail(Code::conflict,
                  fmt::format("{} is below a directory that other users can write to",
                              below(wanted.relative)),
                  "remove it and try again");
    if (made && last && wanted.owner && ::geteuid() == 0 &&
        ::fchown(next.get(), wanted.owner->uid, wanted.owner->gid) != 0)
      return fail_errno(below(wanted.relative), errno);
    if (made && ::fchmod(next.get(), last ? wanted.mode : 0711) != 0)
      return fail_errno(below(wanted.relative), errno);
    above = std::move(next);
  }
  return above;
}

}  // namespace billow::agent
