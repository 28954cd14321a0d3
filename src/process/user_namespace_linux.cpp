#include "process/user_namespace.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>

#include "process/spawn.h"

namespace billow::process {

Result<Fd> make_user_namespace(const OutsideUser& root) {
  Pipe made = BILLOW_TRY(Pipe::create());
  Spawn request;
  request.body = [fd = made.write.get()] {
    const char ready = 1;
    if (::unshare(CLONE_NEWUSER) != 0 || ::write(fd, &ready, 1) != 1)
      return errno;
    ::pause();  // until the namespace is open elsewhere
    return 0;
  };
  Child child = BILLOW_TRY(spawn(request));
  made.write.reset();
  char ready = 0;
  if (::read(made.read.get(), &ready, 1) != 1)
    return fail_errno("make a user namespace", child.wait().code());
  const auto put = [&](const char* file, std::uint32_t id) -> Status {
    const std::string path = fmt::format("/proc/{}/{}", child.pid(), file),
                      text = fmt::format("0 {} 1", id);
    const Fd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (!fd || ::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
      return fail_errno(path, errno);
    return {};
  };
  BILLOW_TRY_VOID(put("uid_map", root.uid));
  BILLOW_TRY_VOID(put("gid_map", root.gid));
  Fd fd(::open(fmt::format("/proc/{}/ns/user", child.pid()).c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd)
    return fail_errno("open a user namespace", errno);
  (void)child.end_and_wait();
  return fd;
}

Status enter_user_namespace(int fd) {
  if (::setns(fd, CLONE_NEWUSER) != 0)
    return fail_errno("enter a user namespace", errno);
  return become_namespace_root();
}

Status become_namespace_root() {
  if (::setgroups(0, nullptr) != 0 || ::setresgid(0, 0, 0) != 0 || ::setresuid(0, 0, 0) != 0)
    return fail_errno("become root of a user namespace", errno);
  return {};
}

}  // namespace billow::process
