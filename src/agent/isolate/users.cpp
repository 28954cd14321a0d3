#include "agent/isolate/users.h"

#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#include "base/crypto.h"
#include "base/file.h"
#include "base/text.h"
#include "supervise/spec.h"

namespace billow::agent {
namespace {

Result<UserRecord> from_passwd(const passwd& entry) {
  UserRecord user{entry.pw_name, entry.pw_dir, entry.pw_shell, {entry.pw_uid, entry.pw_gid, {}}};
  int count = 64;
  std::vector<gid_t> groups(static_cast<std::size_t>(count));
  while (::getgrouplist(entry.pw_name, entry.pw_gid, groups.data(), &count) < 0) {
    if (static_cast<std::size_t>(count) <= groups.size())
      count = static_cast<int>(groups.size()) * 2;
    if (static_cast<std::size_t>(count) > supervise::spec_groups_max) {
      count = static_cast<int>(groups.size());
      break;
    }
    groups.resize(static_cast<std::size_t>(count));
  }
  groups.resize(std::min(static_cast<std::size_t>(std::max(count, 0)), supervise::spec_groups_max));
  user.identity.groups.assign(groups.begin(), groups.end());
  return user;
}

struct Range {
  std::uint64_t first = 1'878'982'656, count = 65'536;
};
// "billow:FIRST:COUNT"
Range range_in(const char* file) {
  const auto text = read_file(file, 1 << 20);
  for (const std::string& line : split(text ? *text : "", '\n')) {
    const auto words = split(line, ':');
    if (words.size() != 3 || words[0] != "billow")
      continue;
    const auto first = parse_int(words[1], 1, UINT32_MAX - 1),
               count = parse_int(words[2], 1, UINT32_MAX - 1);
    if (first && count && *first + *count < UINT32_MAX)
      return {static_cast<std::uint64_t>(*first), static_cast<std::uint64_t>(*count)};
  }
  return {};
}

}  // namespace

Identity container_user(TaskId task) {
  static const Range uids = range_in("/etc/subuid"), gids = range_in("/etc/subgid");
  return {static_cast<std::uint32_t>(uids.first + task.value % uids.count),
          static_cast<std::uint32_t>(gids.first + task.value % gids.count),
          {}};
}

Result<UserRecord> confined_user(const std::string& account) {
  if (::geteuid() != 0)
    return resolve_job_user({.unix_user = account});
  const Sha256 digest = sha256("confined:" + account);
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < sizeof number; ++i)
    number = number << 8 | static_cast<std::uint8_t>(digest[i]);
  return UserRecord{"agent", "/", "/bin/sh", container_user(TaskId(number))};
}

Result<UserRecord> look_up_user(const std::string& name) {
  std::vector<char> buffer(16 << 10);
  passwd entry{};
  passwd* found = nullptr;
  int error = ::getpwnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found);
  while (error == ERANGE && buffer.size() < (1u << 20)) {
    buffer.resize(buffer.size() * 2);
    error = ::getpwnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found);
  }
  // getpwnam(3): these errors mean that there is none. Others say nothing about the name.
  const bool asked =
      error == 0 || error == ENOENT || error == ESRCH || error == EBADF || error == EPERM;
  if (found == nullptr && !asked)
    return fail_errno(fmt::format("look up user '{}'", name), error);
  if (found == nullptr)
    return fail(Code::not_found, fmt::format("this machine has no user '{}'", name),
                "create the account, or map the Billow user to another one");
  return from_passwd(*found);
}

Result<UserRecord> user_by_numbers(std::string_view text) {
  const std::size_t colon = text.find(':');
  const auto uid = parse_int(text.substr(0, colon), 1, UINT32_MAX - 1);
  const auto gid = parse_int(colon == text.npos ? "" : text.substr(colon + 1), 1, UINT32_MAX - 1);
  if (!uid || !gid)
    return fail(Code::invalid, fmt::format("\"{}\" is not a user and a group by number", text),
                "for example 1000:1000; 0 is not allowed");
  return UserRecord{std::to_string(*uid),
                    "/tmp",
                    "/bin/sh",
                    {static_cast<std::uint32_t>(*uid), static_cast<std::uint32_t>(*gid), {}}};
}

Result<UserRecord> look_up_uid(std::uint32_t uid) {
  std::vector<char> buffer(64 << 10);
  passwd entry{};
  passwd* found = nullptr;
  ::getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found);
  if (found == nullptr)
    return fail(Code::not_found, fmt::format("user {} has no account on this machine", uid));
  return from_passwd(*found);
}

Result<UserRecord> current_user() {
  if (auto named = look_up_uid(::geteuid()))
    return named;
  // The uid may have no name, for example in a container.
  const char* home = ::getenv("HOME");
  return UserRecord{std::to_string(::geteuid()),
                    home && *home == '/' ? home : "/",
                    "/bin/sh",
                    {::geteuid(), ::getegid(), {}}};
}

Result<UserRecord> resolve_job_user(const JobUser& user) {
  return permitted_user(
      BILLOW_TRY(user.unix_user.empty() ? current_user() : look_up_user(user.unix_user)),
      user.allow_root);
}

Result<UserRecord> permitted_user(UserRecord record, bool allow_root) {
  if (record.identity.uid == 0 && !allow_root)
    return fail(
        Code::forbidden,
        fmt::format("a job of a user who is not root may not run as '{}' (uid 0)", record.name),
        "map the Billow user to an ordinary account of this machine");
  if (::geteuid() != 0 && record.identity.uid != ::geteuid())
    return fail(Code::forbidden,
                fmt::format("this agent runs as uid {} and cannot start jobs as '{}'", ::geteuid(),
                            record.name),
                "run the agent as root, or submit as the agent's own user");
  return record;
}

}  // namespace billow::agent
