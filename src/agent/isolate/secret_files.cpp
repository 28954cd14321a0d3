#include "agent/isolate/secret_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>

#include "base/crypto.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"

namespace billow::agent {
namespace {

constexpr long tmpfs_magic = 0x01021994;

}  // namespace

// In memory if the machine has a tmpfs: a disk may keep what was removed.
std::string SecretFiles::place() {
  for (const char* candidate : {"/dev/shm", "/run"}) {
    struct statfs info {};
    if (::statfs(candidate, &info) == 0 && static_cast<long>(info.f_type) == tmpfs_magic &&
        ::access(candidate, W_OK) == 0)
      return candidate;
  }
  return "/tmp";
}

SecretFiles::SecretFiles(TreeRemoval& removal,
                         const std::string& directory,
                         const std::string& owner,
                         std::string key)
    : removal_(removal),
      prefix_(directory + "/secrets-"),
      old_prefix_(fmt::format("{}/billow-secrets-{}-", place(), owner)),
      shm_prefix_(directory + "/shm-"),
      key_(std::move(key)) {}

std::string SecretFiles::name(TaskId task, const char* purpose) const {
  std::string number = std::to_string(task.value);
  if (key_.empty())
    return number;
  return number + "-" + hmac_sha256_hex(key_, purpose + number).substr(0, 32);
}
std::string SecretFiles::path(TaskId task) const {
  return prefix_ + name(task, "secrets-");
}
std::string SecretFiles::path(TaskId task, const std::string& secret) const {
  return path(task) + "/" + secret;
}

std::string SecretFiles::Written::variable() const {
  std::string out = name;
  for (char& c : out)
    if (!std::isalnum(static_cast<unsigned char>(c)))
      c = '_';
  // Not every name of a secret is a valid name of a variable.
  return (std::isdigit(static_cast<unsigned char>(out.front())) ? "_" : "") + out + "_FILE";
}

Result<std::vector<SecretFiles::Written>> SecretFiles::write(
    TaskId task,
    const std::vector<SecretWish>& wishes,
    const std::vector<GivenSecret>& secrets,
    const UserRecord& user) const {
  std::vector<Written> out;
  const auto give = [&](int fd, const std::string& what) -> Status {
    if (::geteuid() == 0 && ::fchown(fd, user.identity.uid, user.identity.gid) != 0)
      return fail_errno(what, errno);
    return {};
  };
  // Given to the user when complete: until then nobody else can write there.
  std::vector<std::string> directories;
  const auto directory = [&](const std::string& dir) -> Status {
    if (std::find(directories.begin(), directories.end(), dir) != directories.end())
      return {};
    if (::mkdir(dir.c_str(), 0700) != 0)
      return fail_errno(dir, errno);
    directories.push_back(dir);
    return {};
  };
  for (std::size_t i = 0; i < secrets.size() && i < wishes.size(); ++i) {
    const GivenSecret& secret = secrets[i];
    if (secret.file.empty())
      continue;
    if (out.empty()) {
      remove(task);  // left by an earlier task of the same number
      BILLOW_TRY_VOID(directory(path(task)));
    }
    Written one{wishes[i].name, path(task, wishes[i].name), {}};
    if (secret.file != usual_place(one.name)) {
      one.wanted = secret.file;
      const auto same = std::find_if(out.begin(), out.end(), [&](const Written& w) {
        return !w.wanted.empty() && w.wanted_directory() == one.wanted_directory();
      });
      const std::string dir =
          same != out.end() ? same->directory() : fmt::format("{}/.at{}", path(task), i);
      BILLOW_TRY_VOID(directory(dir));
      one.file = dir + one.wanted.substr(one.wanted.rfind('/'));
    }
    const Fd fd(
        ::open(one.file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0400));
    if (!fd)
      return fail_errno(one.file, errno);
    std::string value;
    if (!base64_decode(secret.value, value))
      return fail(Code::internal, fmt::format("the value of secret {} is damaged", one.name));
    BILLOW_TRY_VOID(write_all(fd.get(), value));
    BILLOW_TRY_VOID(give(fd.get(), one.file));
    out.push_back(std::move(one));
  }
  for (auto dir = directories.rbegin(); dir != directories.rend(); ++dir) {
    const Fd fd(::open(dir->c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!fd)
      return fail_errno(*dir, errno);
    BILLOW_TRY_VOID(give(fd.get(), *dir));
  }
  return out;
}

Result<std::string> SecretFiles::make_shared_memory(const OwnPlace& memory,
                                                    TaskId task,
                                                    const UserRecord& user) const {
  const std::string relative = "shm-" + name(task, "shm-");
  remove(memory.below(relative));  // left by an earlier task of the same number
  BILLOW_TRY(memory.directory({.relative = relative,
                               .mode = 0700,
                               .owner = user.identity,
                               .existing = OwnPlace::If::exists_fail}));
  return memory.below(relative);
}

void SecretFiles::remove(TaskId task) const {
  const std::string number = std::to_string(task.value);  // the whole name, in older agents
  for (const std::string& path :
       {path(task), shm_prefix_ + name(task, "shm-"), prefix_ + number, shm_prefix_ + number})
    remove(path);
}

void SecretFiles::remove(const std::string& path) const {
  if (const Status gone = removal_.remove(path); !gone)
    log_warn("files of a task in memory: {}", gone.error().message);
}

void SecretFiles::remove_others(const std::vector<TaskId>& live) const {
  for (const std::string& prefix : {prefix_, old_prefix_, shm_prefix_}) {
    const auto slash = prefix.rfind('/');
    const std::string directory = prefix.substr(0, slash), begins = prefix.substr(slash + 1);
    DIR* dir = ::opendir(directory.c_str());
    if (dir == nullptr)
      continue;
    std::vector<std::string> stale;
    while (const dirent* entry = ::readdir(dir)) {
      const std::string_view name = entry->d_name;
      if (!name.starts_with(begins))
        continue;
      const std::string_view rest = name.substr(begins.size());
      const auto id = parse_int(rest.substr(0, rest.find('-')), 1, INT64_MAX);
      if (id && std::find(live.begin(), live.end(), TaskId(static_cast<std::uint64_t>(*id))) ==
                    live.end())
        stale.push_back(directory + "/" + std::string(name));
    }
    ::closedir(dir);
    for (const std::string& path : stale)
      remove(path);
  }
}

}  // namespace billow::agent
