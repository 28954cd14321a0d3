#include "agent/reach/ssh_server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
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

// Not every value can be written in sshd_config. A variable that cannot is left out.
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
      place.place.cwd.find_first_of(" \t'\"%\\\n\r") == std::string::npos ? " -d " + place.place.cwd
                                                                          : "");
  // Where sessions of `billow ssh` start, and relative paths of scp.
  std::string set;
  if (can_be_written(place.place.cwd))
    set += fmt::format(" \"BILLOW_WORKDIR={}\"", place.place.cwd);
  for (const std::string& variable : place.place.env) {
    const auto equals = variable.find('=');
    const std::string_view name = std::string_view(variable).substr(0, equals);
    if (equals == std::string::npos || name == "HOME" || name == "USER" || name == "LOGNAME" ||
        name == "SHELL" || name == "TERM" || !can_be_written(variable))
      continue;
    set += fmt::format(" \"{}\"", variable);
  }
  // sshd itself runs outside the container, and each session enters it. So sshd must not forward to
  // what lies outside: sockets of the node's file system, and the node's network if the container
  // has none and sshd could not enter its network namespace.
  if (!place.place.image_entry.empty())
    return text + fmt::format(
                      "AllowAgentForwarding no\nAllowStreamLocalForwarding no\nAllowTcpForwarding "
                      "{}\nForceCommand {} box --enter {}/entry\n",
                      place.no_network && ::geteuid() != 0 ? "no" : "yes",
                      shell_quote(executable_dir() + "/billow"), dir);
  if (!set.empty())
    text += "SetEnv" + set + "\n";
  return text;
}

// Into a directory that only we can still enter.
Status write_private(const std::string& path, std::string_view content, const SshPlace& place) {
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd)
    return fail_errno(path, errno);
  BILLOW_TRY_VOID(write_all(fd.get(), content));
  if (place.other_user() &&
      ::fchown(fd.get(), place.user.identity.uid, place.user.identity.gid) != 0)
    return fail_errno(path, errno);
  return {};
}

// sshd on the node's file system, or in the job's mount namespace if that is the node's file system
// with the job's volumes and devices. For a job with an image each session enters the image.
process::Spawn request_of(const SshPlace& ssh, const std::string& sshd, const std::string& config) {
  const JobPlace& place = ssh.place;
  process::Spawn out;
  out.argv = {sshd, "-i", "-f", config};
  out.env = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"};
  for (const std::string& variable : place.env)
    if (variable.starts_with("BILLOW_TASK_KEY="))
      out.env->push_back(variable);
  // Not the job's directory: its file system may not answer, and the agent's loop waits for the
  // start. Sessions go there by themselves.
  out.cwd = "/";
  out.identity = place.identity;
  out.cgroups = place.cgroups;
  if (place.image_entry.empty())  // otherwise each session is confined inside the image
    out.refused_calls = place.refused_calls;
  if (::geteuid() == 0)
    out.namespaces = {.pid = place.pid, .mount = place.image_entry.empty(), .network = true};
  out.group = process::Group::session;
  out.on_parent_death = SIGTERM;
  return out;
}

}  // namespace

// The job's user can reach the directories; others cannot look into them. Those that an earlier
// agent left are removed: their connections ended with it.
SshServers::SshServers(TreeRemoval& removal, const std::string& directory)
    : removal_(removal), prefix_(directory + "/ssh-") {
  std::error_code ec;
  for (std::filesystem::directory_iterator at(directory, ec), end; !ec && at != end;
       at.increment(ec))
    if (at->path().native().starts_with(prefix_))
      remove(at->path().native());
}

void SshServers::remove(const std::string& dir) {
  if (const Status gone = removal_.remove(dir); !gone)
    log_warn("{}", gone.error().message);
}

Result<Tunnels::Target> SshServers::open(const SshPlace& place, const std::string& authorized_key) {
  const std::string sshd = find_sshd();
  if (sshd.empty())
    return fail(Code::unsupported,
                "the node has no sshd: install openssh-server on it (the service need not run), or "
                "use `billow shell` or `billow attach`");
  if (!is_ssh_public_key(authorized_key))
    return fail(Code::invalid, "the key is not an OpenSSH public key");
  const auto [known, fresh] = keys_.try_emplace(place.task);
  if (fresh)
    known->second = make_ssh_key("billow");
  // One directory for each connection. Once complete it is given to the user and never read again:
  // the user may replace what is in it.
  std::string dir = fmt::format("{}{}-XXXXXX", prefix_, place.task.value);
  if (::mkdtemp(dir.data()) == nullptr)
    return fail_errno(dir, errno);
  const std::string authorized = dir + "/authorized", config = dir + "/config";
  const auto written = [&]() -> Status {
    BILLOW_TRY_VOID(write_private(dir + "/host_key", known->second.private_file, place));
    BILLOW_TRY_VOID(write_private(authorized, authorized_key + "\n", place));
    if (!place.place.image_entry.empty())
      BILLOW_TRY_VOID(write_private(dir + "/entry", place.place.image_entry, place));
    BILLOW_TRY_VOID(write_private(config, config_of(place, dir, authorized), place));
    const Fd made(::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!made || (place.other_user() &&
                  ::fchown(made.get(), place.user.identity.uid, place.user.identity.gid) != 0))
      return fail_errno(dir, errno);
    return {};
  };
  if (const Status done = written(); !done) {
    remove(dir);
    return pass(done.error());
  }
  if (place.user.identity.uid == 0)
    ::mkdir("/run/sshd", 0755);  // sshd requires it when it runs as root

  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return fail_errno("socketpair", errno);
  Tunnels::Target target{Fd(ends[0]), known->second.public_line, place.user.name};
  const Fd theirs(ends[1]);
  ::fcntl(target.fd.get(), F_SETFL, O_NONBLOCK);
  process::Spawn request = request_of(place, sshd, config);
  request.in = request.out = theirs.get();
  auto child = process::spawn(request);
  if (!child) {
    remove(dir);
    return pass(child.error(), "sshd could not be started in the job");
  }
  running_.push_back({place.task, std::move(*child), dir});
  return target;
}

bool SshServers::ended(TaskId task) {
  if (keys_.erase(task) == 0)
    return false;
  for (const Running& one : running_)
    if (one.task == task)
      one.sshd.signal(SIGTERM);
  return true;
}

void SshServers::reap() {
  std::erase_if(running_, [this](Running& one) {
    if (!one.sshd.poll())
      return false;
    remove(one.dir);
    return true;
  });
}

}  // namespace billow::agent
