#include "agent/isolate/escape_tries.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <sys/klog.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>

#include "agent/isolate/fetch_place.h"
#include "process/call_filter_linux.h"
#include "process/spawn.h"

namespace billow::agent {
namespace {

constexpr std::uint32_t nobody = 65534;
constexpr int first_process = 1;

enum class From {
  anywhere,
  node,    // in a pid namespace, process 1 is one of the job's own
  behind,  // only a wall refuses it
};
// System calls only: each runs in a forked process. A result below zero is a refusal.
struct Attempt {
  const char* name;
  long (*run)();
  From from = From::anywhere;
};

long open_file(const char* path, int how) {
  return ::open(path, how | O_CLOEXEC);
}
long ask_metadata() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(80);
  to.sin_addr.s_addr = htonl(0xa9fea9fe);  // 169.254.169.254
  const int result = ::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to);
  return result != 0 && errno == EINPROGRESS ? 0 : result;
}
long new_privileges() {
  if (::prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1)
    return 0;
  errno = EPERM;
  return -1;
}

long reach_network() {
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(53);
  to.sin_addr.s_addr = htonl(0xc0000201);  // 192.0.2.1, an address for examples
  return ::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to);
}
long have_capabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct sets[2] = {};
  if (::syscall(SYS_capget, &header, sets) != 0 || sets[0].permitted != 0 || sets[1].permitted != 0)
    return 0;
  errno = EPERM;
  return -1;
}
long make_device() {
  constexpr const char* path = "/tmp/billow-doctor-device";
  const int result = ::mknod(path, S_IFCHR | 0600, makedev(1, 3));
  if (result == 0)
    ::unlink(path);
  return result;
}

constexpr Attempt attempts[] = {
    {"create a user namespace",
     [] {
       return static_cast<long>(::unshare(CLONE_NEWUSER));
     }},
    {"create a network namespace",
     [] {
       return static_cast<long>(::unshare(CLONE_NEWNET));
     }},
    {"mount a file system",
     [] {
       return static_cast<long>(::mount("none", "/", "tmpfs", MS_REMOUNT, nullptr));
     }},
    {"open a mount tree",
     [] {
       return ::syscall(SYS_open_tree, AT_FDCWD, "/", 1);
     }},
    {"use the kernel's keyrings",
     [] {
       return ::syscall(SYS_keyctl, 0, -4, 1);
     }},
    {"load a BPF program",
     [] {
       return ::syscall(SYS_bpf, 0, nullptr, 0);
     }},
    {"use userfaultfd",
     [] {
       return ::syscall(SYS_userfaultfd, 1);
     }},
    {"use io_uring",
     [] {
       return ::syscall(SYS_io_uring_setup, 0, nullptr);
     }},
    {"profile all processes",
     [] {
       return ::syscall(SYS_perf_event_open, nullptr, -1, 0, -1, 0);
     }},
    {"load a kernel module",
     [] {
       return ::syscall(SYS_finit_module, -1, "", 0);
     }},
    {"load another kernel",
     [] {
       return ::syscall(SYS_kexec_load, 0, 0, nullptr, 0);
     }},
    {"open files by handle",
     [] {
       return ::syscall(SYS_open_by_handle_at, -1, nullptr, 0);
     }},
    {"read the kernel's log",
     [] {
       return static_cast<long>(::klogctl(10, nullptr, 0));
     }},
    {"talk to the hypervisor",
     [] {
       return static_cast<long>(::socket(40, SOCK_STREAM, 0));
     }},
    {"send raw packets",
     [] {
       return static_cast<long>(::socket(AF_PACKET, SOCK_RAW, 0));
     }},
    {"reach the cloud's metadata service", ask_metadata},
    {"gain privileges by a set-user-id program", new_privileges},
    {"signal a process of root", [] { return static_cast<long>(::kill(first_process, 0)); },
     From::node},
    {"trace a process of root",
     [] { return ::ptrace(PTRACE_SEIZE, first_process, nullptr, nullptr); }, From::node},
    {"read the variables of a process of root",
     [] {
       return open_file("/proc/1/environ", O_RDONLY);
     }},
    {"read the memory of the machine",
     [] {
       return open_file("/dev/mem", O_RDONLY);
     }},
    {"change settings of the kernel",
     [] {
       return open_file("/proc/sys/kernel/core_pattern", O_WRONLY);
     }},
    {"use the magic keys",
     [] {
       return open_file("/proc/sysrq-trigger", O_WRONLY);
     }},
    {"read the passwords",
     [] {
       return open_file("/etc/shadow", O_RDONLY);
     }},
    {"raise the priority",
     [] {
       return static_cast<long>(::setpriority(PRIO_PROCESS, 0, -20));
     }},
    {"reach the network", reach_network, From::behind},
    {"keep a capability", have_capabilities, From::behind},
    {"make a device file", make_device, From::behind},
    {"see the control groups of other jobs",
     [] { return open_file("/sys/fs/cgroup/cgroup.procs", O_RDONLY); }, From::behind},
    {"see the services of the node", [] { return open_file("/run/systemd", O_RDONLY); },
     From::behind},
    {"look into the container's first process",
     [] { return open_file("/proc/1/root", O_PATH | O_DIRECTORY); }, From::behind},
};

// Other errors, such as a wrong argument, mean that the call itself was allowed.
bool is_refusal(int error) {
  for (const int one :
       {EPERM, EACCES, ENOSYS, EAFNOSUPPORT, EPROTONOSUPPORT, ENOENT, ENETUNREACH, EHOSTUNREACH})
    if (error == one)
      return true;
  return false;
}

Result<EscapeTry> carry_out(const char* name,
                            const std::function<long()>& run,
                            process::Spawn request) {
  request.body = [&run] {
    errno = 0;
    return run() < 0 ? errno : 0;
  };
  process::Child child = BILLOW_TRY(process::spawn(request));
  const int error = child.wait().code();
  return EscapeTry{name, is_refusal(error), error == 0 ? "" : strerrorname_np(error), {}};
}

process::Spawn like_a_job(const std::vector<std::string>& cgroups) {
  process::Spawn request;
  if (::geteuid() == 0)
    request.identity = process::Identity{nobody, nobody, {}};
  request.no_new_privs = true;
  request.refused_calls = process::no_kernel_doors | process::no_namespaces | process::own_domain;
  request.cgroups = cgroups;
  return request;
}

// Another process of the account, as another job of it is one.
Result<EscapeTry> look_into_another_job(const std::vector<std::string>& cgroups) {
  process::Spawn request = like_a_job(cgroups);
  request.body = [] {
    ::prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);  // as after an exec
    ::pause();
    return 0;
  };
  process::Child other = BILLOW_TRY(process::spawn(request));
  const std::string path = fmt::format("/proc/{}/environ", other.pid());
  EscapeTry out = BILLOW_TRY(carry_out(
      "read the variables of another job of its account",
      [&path] { return open_file(path.c_str(), O_RDONLY); }, like_a_job(cgroups)));
  if (process::landlock_version() < process::landlock_version_min)
    out.why = "this kernel has no Landlock: run it with lsm=landlock,…, from Linux 5.19 on";
  return out;
}

}  // namespace

Result<std::vector<EscapeTry>> try_escapes() {
  const Cgroups cgroups = Cgroups::detect({.owner = fmt::format("doctor{}", ::getpid())});
  const auto guard = NetworkGuard::create();
  const FetchPlace place =
      BILLOW_TRY(FetchPlace::create(cgroups, TaskId(1), guard ? &*guard : nullptr));
  std::vector<EscapeTry> out;
  for (const Attempt& attempt : attempts)
    if (attempt.from != From::behind)
      out.push_back(BILLOW_TRY(carry_out(attempt.name, attempt.run, like_a_job(place.groups()))));
  out.push_back(BILLOW_TRY(look_into_another_job(place.groups())));
  return out;
}

Result<std::vector<EscapeTry>> try_escapes_from_here() {
  std::vector<EscapeTry> out;
  for (const Attempt& attempt : attempts)
    if (attempt.from != From::node)
      out.push_back(BILLOW_TRY(carry_out(attempt.name, attempt.run, {})));
  return out;
}

}  // namespace billow::agent
