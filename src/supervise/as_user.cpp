#include "supervise/as_user.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

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

}  // namespace

int become_image_user(int argc, char** argv) {
  constexpr int container_failed = 125, not_executable = 126, not_found = 127;
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
  execvpe(argv[3], argv + 3,
          environ);  // not as root: all capabilities end here
  return complain(argv[3], errno, errno == ENOENT || errno == ENOTDIR ? not_found : not_executable);
}

}  // namespace billow::supervise
