#include <fmt/format.h>
#include <sched.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>

#include <cerrno>
#include <system_error>
#include <thread>

#include "process/aside.h"

namespace billow::process {
namespace {

Status run_on_this_thread(const Aside& aside, const std::function<Status()>& work) {
  if (aside.network >= 0 && ::setns(aside.network, CLONE_NEWNET) != 0)
    return fail_errno("enter the network namespace", errno);
  if (aside.user) {
    ::setfsgid(aside.user->gid);
    ::setfsuid(aside.user->uid);
    // They report no error, but the user that was set before.
    if (static_cast<std::uint32_t>(::setfsuid(aside.user->uid)) != aside.user->uid ||
        static_cast<std::uint32_t>(::setfsgid(aside.user->gid)) != aside.user->gid)
      return fail(Code::forbidden, fmt::format("cannot make sockets of user {}", aside.user->uid));
  }
  return work();
}

}  // namespace

Status run_aside(const Aside& aside, const std::function<Status()>& work) {
  Status done;
  const int dumpable = ::prctl(PR_GET_DUMPABLE);
  try {
    std::thread([&] { done = run_on_this_thread(aside, work); }).join();
  } catch (const std::system_error& e) {
    return fail(Code::unavailable, fmt::format("no thread could be started: {}", e.what()));
  }
  if (dumpable == 1)  // a change of user clears it, for the whole process
    ::prctl(PR_SET_DUMPABLE, 1);
  return done;
}

}  // namespace billow::process
