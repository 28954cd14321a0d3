#include "container/enter.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/capability.h>
#include <linux/nsfs.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <initializer_list>

#include "base/file.h"
#include "base/text.h"
#include "container/bundle.h"
#include "container/confine.h"
#include "container/no_sftp.h"
#include "process/spawn.h"
#include "process/user_namespace.h"

namespace billow::container {
namespace {

constexpr int capabilities_end = 64;
// As the runtime gives them to the job's own program (see bundle.cpp).
constexpr int kept_capabilities[] = {CAP_CHOWN,   CAP_DAC_OVERRIDE,     CAP_FOWNER,    CAP_FSETID,
                                     CAP_KILL,    CAP_NET_BIND_SERVICE, CAP_SETFCAP,   CAP_SETGID,
                                     CAP_SETPCAP, CAP_SETUID,           CAP_SYS_CHROOT};

// A process stays in its own pid namespace; its children are in the one it entered.
constexpr std::pair<const char*, int> shared_kinds[] = {
    {"pid", CLONE_NEWPID}, {"ipc", CLONE_NEWIPC}, {"uts", CLONE_NEWUTS}};

Result<Fd> namespace_of(int pid, const char* kind) {
  const std::string path = fmt::format("/proc/{}/ns/{}", pid, kind);
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd)
    return fail(Code::conflict,
                "cannot enter the job's container: the job has just ended, or belongs to another "
                "user");
  return fd;
}
bool same(int a, int b) {
  struct stat one {
  }, two{};
  return ::fstat(a, &one) == 0 && ::fstat(b, &two) == 0 && one.st_ino == two.st_ino &&
         one.st_dev == two.st_dev;
}

// Enters the user namespace that owns the container's mounts first, because only there the other
// namespaces may be entered. If the image names a user, its program has a second user namespace
// inside that one.
Status enter(int pid) {
  const Fd mounts = BILLOW_TRY(namespace_of(pid, "mnt")),
           user = BILLOW_TRY(namespace_of(pid, "user")),
           network = BILLOW_TRY(namespace_of(pid, "net"));
  const Fd our_network = BILLOW_TRY(namespace_of(::getpid(), "net")),
           our_user = BILLOW_TRY(namespace_of(::getpid(), "user"));
  const Fd owner(::ioctl(mounts.get(), NS_GET_USERNS));
  if (!owner)
    return fail_errno("find the owner of the job's container", errno);
  const bool was_root = ::geteuid() == 0;
  if (!same(owner.get(), our_user.get()) && ::setns(owner.get(), CLONE_NEWUSER) != 0)
    return fail_errno("enter the job's user namespace", errno);
  // In a container of root, root is another user outside.
  if (was_root && ::geteuid() != 0)
    BILLOW_TRY_VOID(process::become_namespace_root());
  for (const auto& [kind, flag] : shared_kinds) {
    const Fd its = BILLOW_TRY(namespace_of(pid, kind)),
             ours = BILLOW_TRY(namespace_of(::getpid(), kind));
    if (!same(its.get(), ours.get()) && ::setns(its.get(), flag) != 0)
      return fail_errno(fmt::format("enter the job's {} namespace", kind), errno);
  }
  if (!same(network.get(), our_network.get()) && ::setns(network.get(), CLONE_NEWNET) != 0)
    return fail_errno("enter the job's network namespace", errno);
  if (::setns(mounts.get(), CLONE_NEWNS) != 0)
    return fail_errno("enter the job's mount namespace", errno);
  if (!same(user.get(), owner.get()) && ::setns(user.get(), CLONE_NEWUSER) != 0)
    return fail_errno("become the user of the job's container", errno);
  return {};
}

// A process that enters a user namespace gets all capabilities in it; the job's program has fewer.
Status give_up_capabilities() {
  const auto kept = [](int one) {
    return std::find(std::begin(kept_capabilities), std::end(kept_capabilities), one) !=
           std::end(kept_capabilities);
  };
  for (int one = 0; one < capabilities_end; ++one)
    if (!kept(one) && ::prctl(PR_CAPBSET_READ, one, 0, 0, 0) == 1 &&
        ::prctl(PR_CAPBSET_DROP, one, 0, 0, 0) != 0)
      return fail_errno("give up capabilities", errno);
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  for (const int one : kept_capabilities)
    data[one / 32].permitted |= 1u << (one % 32);
  for (auto& half : data)
    half.effective = half.permitted;
  if (::syscall(SYS_capset, &header, data) != 0)
    return fail_errno("give up capabilities", errno);
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
    return fail_errno("give up privileges", errno);
  return {};
}

std::string first_program(std::initializer_list<std::string> paths) {
  for (const std::string& path : paths)
    if (!path.empty() && ::access(path.c_str(), X_OK) == 0)
      return path;
  return {};
}

// The shell of the image's user in the image's passwd file.
std::string shell_in(const std::string& passwd) {
  std::string named;
  const std::string uid = std::to_string(::geteuid());
  for (const std::string& line : split(passwd, '\n'))
    if (const auto words = split(line, ':'); words.size() > 6 && words[2] == uid) {
      named = trim(words[6]);
      break;
    }
  if (named.ends_with("nologin") || named.ends_with("false"))
    named.clear();
  return first_program({named, "/bin/bash", "/usr/bin/bash", "/bin/sh", "/usr/bin/sh", "/bin/ash"});
}

}  // namespace

Status enter_container(const Entry& entry, const std::string& command) {
  // First: inside, the container's processes could take this one over.
  BILLOW_TRY_VOID(forbid_privileged_files());
  BILLOW_TRY_VOID(enter(entry.pid));
  BILLOW_TRY_VOID(give_up_capabilities());
  const std::string passwd = read_file("/etc/passwd", 4 << 20).value_or(""),
                    groups = read_file("/etc/group", 4 << 20).value_or("");
  const Json bundle = BILLOW_TRY(make_bundle(
      entry.plan,
      {.root = "/", .command = {"sh"}, .env = entry.env, .passwd = passwd, .groups = groups}));
  const Json& process = bundle["process"];
  std::vector<std::string> env, argv;
  const std::string shell = shell_in(passwd), directory(process["cwd"].str_or("/"));
  for (const Json& one : process["env"].items())
    if (const auto text = one.str_or(""); !text.starts_with("TERM=") && !text.starts_with("SHELL="))
      env.emplace_back(text);
  env.push_back("SHELL=" + shell);
  env.push_back("BILLOW_WORKDIR=" + directory);
  for (const char* name : {"TERM", "LANG", "SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY"})
    if (const char* value = ::getenv(name))
      env.push_back(fmt::format("{}={}", name, value));
  if (::chdir(directory.c_str()) != 0 && ::chdir("/") != 0)
    return fail_errno(directory, errno);
  if (command.starts_with("internal-sftp") || command.ends_with("/sftp-server")) {
    const std::string server = first_program(
        {"/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server",
         "/usr/lib/ssh/sftp-server", "/usr/libexec/sftp-server", "/usr/libexec/ssh/sftp-server"});
    if (server.empty()) {
      refuse_file_transfers(
          "the job's image has no sftp-server: install it there (Debian: openssh-sftp-server), or "
          "use `billow cp`");
      ::_exit(0);
    }
    argv = {server};
  } else if (shell.empty()) {
    return fail(Code::not_found, "the job's image has no shell",
                "use `billow logs`, `billow cp` and `billow port-forward`, or an image with one");
  } else if (command.empty()) {
    argv = {"-" + shell.substr(shell.rfind('/') + 1)};
  } else {
    argv = {shell, "-c", command};
  }
  process::Spawn request{.argv = std::move(argv),
                         .program = command.empty() ? shell : "",
                         .env = std::move(env),
                         .in = process::inherited,
                         .out = process::inherited,
                         .err = process::inherited,
                         .group = process::Group::ours};
  BILLOW_TRY_VOID(confine(entry.plan.refused_calls, entry.plan.refused_numbers));
  // Only a child has the container's process ids.
  process::Child child = BILLOW_TRY(process::spawn(request));
  ::_exit(child.wait().code());
}

}  // namespace billow::container
