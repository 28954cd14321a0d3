#include "agent/secret_files.h"

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

// In memory where the machine has a place for that: a disk may keep what was removed.
std::string place() {
  for (const char* candidate : {"/dev/shm", "/run"}) {
    struct statfs info {};
    if (::statfs(candidate, &info) == 0 && static_cast<long>(info.f_type) == tmpfs_magic && ::access(candidate, W_OK) == 0) return candidate;
  }
  return "/tmp";
}

}  // namespace

SecretFiles::SecretFiles(const std::string& owner) : prefix_(place() + "/billow-secrets-" + owner + "-") {}

std::string SecretFiles::path(TaskId task) const { return prefix_ + std::to_string(task.value); }
std::string SecretFiles::path(TaskId task, const std::string& secret) const { return path(task) + "/" + secret; }

Result<std::vector<std::string>> SecretFiles::write(TaskId task, const std::vector<SecretWish>& wishes, const std::vector<GivenSecret>& secrets, const UserRecord& user) const {
  std::vector<std::string> variables;
  for (std::size_t i = 0; i < secrets.size() && i < wishes.size(); ++i) {
    const GivenSecret& secret = secrets[i];
    if (secret.file.empty()) continue;
    const std::string dir = path(task);
    if (variables.empty()) {
      remove(task);  // of an earlier life with the same number
      if (::mkdir(dir.c_str(), 0700) != 0) return fail_errno(dir, errno);
    }
    const std::string file = path(task, wishes[i].name);
    const Fd fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0400));
    if (!fd) return fail_errno(file, errno);
    std::string value;
    if (!base64_decode(secret.value, value)) return fail(Code::internal, fmt::format("the value of secret {} is damaged", wishes[i].name));
    BILLOW_TRY_VOID(write_all(fd.get(), value));
    if (::geteuid() == 0 && ::fchown(fd.get(), user.identity.uid, user.identity.gid) != 0) return fail_errno(file, errno);
    std::string variable = wishes[i].name;
    for (char& c : variable) if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
    variables.push_back(fmt::format("{}_FILE={}", variable, file));
  }
  if (!variables.empty() && ::geteuid() == 0 && ::chown(path(task).c_str(), user.identity.uid, user.identity.gid) != 0) return fail_errno(path(task), errno);
  return variables;
}

void SecretFiles::remove(TaskId task) const {
  // Also a link that leads nowhere: the name can be guessed, and where it lies everybody may write.
  if (const Status gone = remove_tree(path(task)); !gone) log_warn("task {}: its secret files: {}", task.value, gone.error().message);
}

void SecretFiles::remove_others(const std::vector<TaskId>& live) const {
  const auto slash = prefix_.rfind('/');
  const std::string directory = prefix_.substr(0, slash), begins = prefix_.substr(slash + 1);
  DIR* dir = ::opendir(directory.c_str());
  if (dir == nullptr) return;
  std::vector<TaskId> stale;
  while (const dirent* entry = ::readdir(dir)) {
    const std::string_view name = entry->d_name;
    if (!name.starts_with(begins)) continue;
    const auto id = parse_int(name.substr(begins.size()), 1, INT64_MAX);
    if (id && std::find(live.begin(), live.end(), TaskId(static_cast<std::uint64_t>(*id))) == live.end()) stale.emplace_back(static_cast<std::uint64_t>(*id));
  }
  ::closedir(dir);
  for (const TaskId task : stale) remove(task);
}

}  // namespace billow::agent
