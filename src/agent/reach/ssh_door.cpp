#include "agent/reach/ssh_door.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"

namespace billow::agent {
namespace {

std::string find_sshd() {
  if (const char* named = std::getenv("BILLOW_SSHD"))
    return ::access(named, X_OK) == 0 ? named : "";
  for (const char* path : {"/usr/sbin/sshd", "/usr/local/sbin/sshd", "/sbin/sshd", "/usr/bin/sshd"})
    if (::access(path, X_OK) == 0)
      return path;
  return {};
}

// sshd_config has no way to write every value; one that cannot be written is left out.
bool can_be_written(std::string_view value) {
  return value.find_first_of("\"\\\n\r") == std::string_view::npos;
}

std::string config_of(const SshPlace& place,
                      const std::string& dir,
                      const std::string& authorized) {
  std::string text = fmt::format(
      "HostKey {0}/host_key\nAuthorizedKeysFile {1}\nPidFile none\nUsePAM no\nStrictModes "
      "no\nPasswordAuthentication no\n"
      "KbdInteractiveAuthentication no\nPubkeyAuthentication yes\nPermitRootLogin "
      "prohibit-password\nPermitUserRC no\nPrintMotd no\n"
      "PrintLastLog no\nX11Forwarding no\nUseDNS no\nLogLevel ERROR\nSubsystem sftp "
      "internal-sftp{2}\n",
      dir, authorized,
      place.cwd.find_first_of(" \t'\"%\\\n\r") == std::string::npos ? " -d " + place.cwd : "");
  // Where sessions of `billow ssh`, and relative paths of scp, begin.
  std::string set;
  if (can_be_written(place.cwd))
    set += fmt::format(" \"BILLOW_WORKDIR={}\"", place.cwd);
  for (const std::string& variable : place.env) {
    const auto equals = variable.find('=');
    const std::string_view name = std::string_view(variable).substr(0, equals);
    if (equals == std::string::npos || name == "HOME" || name == "USER" || name == "LOGNAME" ||
        name == "SHELL" || name == "TERM" || !can_be_written(variable))
      continue;
    set += fmt::format(" \"{}\"", variable);
  }
  // The shell itself is the node's, and enters the room for each session: what it needs lies
  // outside. So does what it could reach by itself: sockets of the node's file system, and its
  // network where the room has none and could not be entered beforehand.
  if (!place.room.empty())
    return text + fmt::format(
                      "AllowAgentForwarding no\nAllowStreamLocalForwarding no\nAllowTcpForwarding "
                      "{}\nForceCommand {} box --enter {}/room\n",
                      place.no_network && ::geteuid() != 0 ? "no" : "yes",
                      shell_quote(executable_dir() + "/billow"), dir);
  if (!set.empty())
    text += "SetEnv" + set + "\n";
  return text;
}

// Into a directory that is still ours alone.
Status write_private(const std::string& path, std::string_view content, const SshPlace& place) {
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd)
    return fail_errno(path, errno);
  BILLOW_TRY_VOID(write_all(fd.get(), content));
  if (place.other_user && ::fchown(fd.get(), place.user.identity.uid, place.user.identity.gid) != 0)
    return fail_errno(path, errno);
  return {};
}

// The namespaces of the job that differ from ours, opened here because the process that enters them
// has lost its way to /proc by then.
std::vector<Fd> namespaces_of(int pid, bool room) {
  std::vector<Fd> out;
  if (pid <= 0 || ::geteuid() != 0)
    return out;
  for (const char* name : {"net", "mnt"}) {
    if (room && name == std::string_view("mnt"))
      continue;  // of which it is a session's to enter
    struct stat its {
    }, ours{};
    const std::string path = fmt::format("/proc/{}/ns/{}", pid, name);
    if (::stat(path.c_str(), &its) != 0 ||
        ::stat(fmt::format("/proc/self/ns/{}", name).c_str(), &ours) != 0 ||
        its.st_ino == ours.st_ino)
      continue;
    out.emplace_back(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  }
  return out;
}

// Between fork and exec of a process with threads: system calls only.
[[noreturn]] void become(const SshPlace& place,
                         int socket,
                         const std::vector<Fd>& namespaces,
                         const std::vector<Fd>& cgroups,
                         const std::vector<gid_t>& groups,
                         const char* const* argv,
                         const char* const* env) {
  ::setsid();
  ::dup2(socket, 0);
  ::dup2(socket, 1);
  const int null = ::open("/dev/null", O_WRONLY);
  ::dup2(null, 2);
  for (const Fd& group : cgroups)
    (void)!::write(group.get(), "0", 1);
  for (const Fd& one : namespaces)
    if (one && ::setns(one.get(), 0) != 0)
      ::_exit(126);
  if (place.other_user) {
    const Identity& id = place.user.identity;
    if (::setgroups(groups.size(), groups.data()) != 0 ||
        ::setresgid(id.gid, id.gid, id.gid) != 0 || ::setresuid(id.uid, id.uid, id.uid) != 0)
      ::_exit(126);
    ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  }
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::chdir(place.cwd.c_str()) != 0 && ::chdir("/") != 0)
    ::_exit(126);
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  ::sigaction(SIGPIPE, &standard, nullptr);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execve(argv[0], const_cast<char* const*>(argv), const_cast<char* const*>(env));
  ::_exit(127);
}

}  // namespace

// Where the job's user can reach it; nobody else can look into it. Those of an earlier life of this
// agent serve nobody: the processes that used them ended with it.
SshDoors::SshDoors(const std::string& directory) : prefix_(directory + "/ssh-") {
  std::error_code ec;
  for (std::filesystem::directory_iterator at(directory, ec), end; !ec && at != end;
       at.increment(ec))
    if (at->path().native().starts_with(prefix_))
      (void)remove_tree(at->path().native());
}

Result<Tunnels::Door> SshDoors::open(const SshPlace& place, const std::string& authorized_key) {
  const std::string sshd = find_sshd();
  if (sshd.empty())
    return fail(Code::unsupported,
                "the node has no sshd: install openssh-server there (its service need not run); "
                "`billow shell` and `billow attach` work without");
  if (!is_ssh_public_key(authorized_key))
    return fail(Code::invalid, "what was sent is no public key of OpenSSH's");
  const auto [known, fresh] = keys_.try_emplace(place.task);
  if (fresh)
    known->second = make_ssh_key("billow");
  // One for each connection, given to the user when all is in it and never looked into again: what
  // the user puts there is not ours to follow.
  std::string dir = fmt::format("{}{}-XXXXXX", prefix_, place.task.value);
  if (::mkdtemp(dir.data()) == nullptr)
    return fail_errno(dir, errno);
  const std::string authorized = dir + "/authorized", config = dir + "/config";
  const auto written = [&]() -> Status {
    BILLOW_TRY_VOID(write_private(dir + "/host_key", known->second.private_file, place));
    BILLOW_TRY_VOID(write_private(authorized, authorized_key + "\n", place));
    if (!place.room.empty())
      BILLOW_TRY_VOID(write_private(dir + "/room", place.room, place));
    BILLOW_TRY_VOID(write_private(config, config_of(place, dir, authorized), place));
    if (place.other_user &&
        ::lchown(dir.c_str(), place.user.identity.uid, place.user.identity.gid) != 0)
      return fail_errno(dir, errno);
    return {};
  };
  if (const Status done = written(); !done) {
    (void)remove_tree(dir);
    return pass(done.error());
  }
  if (place.user.identity.uid == 0)
    ::mkdir("/run/sshd", 0755);  // which sshd as root insists on

  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return fail_errno("socketpair", errno);
  Tunnels::Door door{Fd(ends[0]), known->second.public_line, place.user.name};
  const Fd theirs(ends[1]);
  ::fcntl(door.fd.get(), F_SETFL, O_NONBLOCK);
  const std::vector<Fd> namespaces = namespaces_of(place.job_pid, !place.room.empty());
  std::vector<Fd> cgroups;
  for (const std::string& group : place.cgroups)
    cgroups.emplace_back(::open((group + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC));
  const std::vector<gid_t> groups(place.user.identity.groups.begin(),
                                  place.user.identity.groups.end());
  const char* argv[] = {sshd.c_str(), "-i", "-f", config.c_str(), nullptr};
  std::vector<const char*> env = {
      "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"};
  for (const std::string& variable : place.env)
    if (variable.starts_with("BILLOW_TASK_KEY="))
      env.push_back(variable.c_str());
  env.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid < 0)
    return fail_errno("fork", errno);
  if (pid == 0)
    become(place, theirs.get(), namespaces, cgroups, groups, argv, env.data());
  running_.push_back({place.task, pid, dir});
  return door;
}

bool SshDoors::ended(TaskId task) {
  if (keys_.erase(task) == 0)
    return false;
  for (const Running& one : running_)
    if (one.task == task)
      ::kill(-one.pid, SIGTERM);
  return true;
}

void SshDoors::reap() {
  std::erase_if(running_, [](const Running& one) {
    if (::waitpid(one.pid, nullptr, WNOHANG) == 0)
      return false;
    if (const Status gone = remove_tree(one.dir); !gone)
      log_warn("task {}: {}", one.task.value, gone.error().message);
    return true;
  });
}

}  // namespace billow::agent
