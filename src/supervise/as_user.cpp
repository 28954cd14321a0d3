#include "supervise/as_user.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "process/become_linux.h"
#include "process/call_filter_linux.h"
#include "supervise/sys.h"

extern char** environ;

namespace billow::supervise {
namespace {

int complain(const char* what, int error, int code) {
  Text<512> line;
  line << what << ": " << errno_text(error) << "\n";
  const ssize_t ignored = write(2, line.data, line.size);
  (void)ignored;
  return code;
}

bool is_number(const char* text) {
  if (*text == 0 || strlen(text) > 10)
    return false;
  for (; *text != 0; ++text)
    if (*text < '0' || *text > '9')
      return false;
  return true;
}

// "6,101,310": the groups of rules as bits, and numbers of further calls.
bool read_confinement(const char* text, std::uint32_t* groups, process::NamedCalls* named) {
  for (std::uint32_t* into = groups;; into = &named->numbers[named->count++]) {
    std::uint64_t value = 0;
    const char* end = text;
    for (; *end >= '0' && *end <= '9' && value <= UINT32_MAX; ++end)
      value = value * 10 + static_cast<std::uint64_t>(*end - '0');
    if (end == text || value > UINT32_MAX)
      return false;
    *into = static_cast<std::uint32_t>(value);
    if (*end == 0)
      return true;
    if (*end != ',' || named->count == process::named_calls_max)
      return false;
    text = end + 1;
  }
}

constexpr int container_failed = 125, not_executable = 126, not_found = 127;

int become(char** argv) {
  execvpe(argv[0], argv, environ);
  return complain(argv[0], errno, errno == ENOENT || errno == ENOTDIR ? not_found : not_executable);
}

}  // namespace

int confine_command(int argc, char** argv) {
  process::NamedCalls named;
  std::uint32_t groups = 0;
  if (argc < 4 || !read_confinement(argv[2], &groups, &named))
    return complain("billow-as-user confine GROUPS[,CALL…] COMMAND", EINVAL, container_failed);
  const char* failed = process::forbid_new_privileges();
  if (failed == nullptr)
    failed = process::refuse_calls(groups, named);
  if (failed != nullptr)
    return complain(failed, errno, container_failed);
  return become(argv + 3);
}

int become_image_user(int argc, char** argv) {
  if (argc < 4 || !is_number(argv[1]) || !is_number(argv[2]))
    return complain("billow-as-user UID GID COMMAND", EINVAL, container_failed);
  if (unshare(CLONE_NEWUSER) != 0)
    return complain("the image's user could not be set up", errno, container_failed);
  Text<64> users, groups;
  users << argv[1] << " 0 1";
  groups << argv[2] << " 0 1";
  if (const int error = write_small("/proc/self/setgroups", "deny"))
    return complain("the image's user could not be set up", error, container_failed);
  if (const int error = write_small("/proc/self/uid_map", users.data))
    return complain("the image's user could not be set up", error, container_failed);
  if (const int error = write_small("/proc/self/gid_map", groups.data))
    return complain("the image's user could not be set up", error, container_failed);
  return become(argv + 3);  // not as root: all capabilities end here
}

}  // namespace billow::supervise
