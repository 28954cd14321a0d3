#include "agent/content/file_copy.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/content/file_socket.h"
#include "base/file.h"
#include "base/text.h"

namespace billow::agent {
namespace {

constexpr int helper_fd = 3;
constexpr int patience_s = 120;  // of either side, between two pieces

// Between fork and exec of a process with threads: system calls only.
[[noreturn]] void become(const CopyHelper& helper,
                         int fd,
                         int said,
                         const char* const* argv,
                         const char* const* env,
                         const gid_t* groups,
                         std::size_t group_count) {
  ::setsid();
  const int null = ::open("/dev/null", O_RDWR);
  ::dup2(null, 0);
  ::dup2(said, 1);
  ::dup2(said, 2);
  // The other descriptors close by themselves at exec.
  if (fd == helper_fd)
    ::fcntl(fd, F_SETFD, 0);
  else
    ::dup2(fd, helper_fd);
  if (helper.identity) {
    if (::setgroups(group_count, groups) != 0 ||
        ::setresgid(helper.identity->gid, helper.identity->gid, helper.identity->gid) != 0 ||
        ::setresuid(helper.identity->uid, helper.identity->uid, helper.identity->uid) != 0)
      ::_exit(126);
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  if (::chdir(helper.cwd.c_str()) != 0)
    ::_exit(125);
  ::execve(argv[0], const_cast<char* const*>(argv), const_cast<char* const*>(env));
  ::_exit(127);
}

// Our own program's words: who asked reads them from another of our programs, which says its name
// before them itself.
std::string in_one_line(std::string_view text) {
  std::string out;
  for (const std::string& line : split(text, '\n')) {
    std::string_view words = trim(line);
    if (words.starts_with("billow: "))
      words.remove_prefix(8);
    if (words.starts_with("hint: "))
      words.remove_prefix(6);
    if (!words.empty())
      out += (out.empty() ? "" : "; ") + std::string(words);
  }
  return out;
}

}  // namespace

Status run_copy_helper(const CopyHelper& helper, const std::function<Status(int fd)>& talk) {
  int ends[2], said[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return fail_errno("socketpair", errno);
  Fd ours(ends[0]), theirs(ends[1]);
  if (::pipe2(said, O_CLOEXEC | O_NONBLOCK) != 0)
    return fail_errno("pipe", errno);
  Fd hear(said[0]), speak(said[1]);
  const std::string program = executable_dir() + "/billow", path = helper.path;
  std::vector<const char*> argv{program.c_str(), "stage", helper.into ? "--copy-in" : "--copy-out"};
  if (!helper.into && !path.empty())
    argv.push_back("--"), argv.push_back(path.c_str());
  argv.push_back(nullptr);
  const char* env[] = {"PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8", nullptr};
  std::vector<gid_t> groups;
  if (helper.identity)
    groups.assign(helper.identity->groups.begin(), helper.identity->groups.end());
  const pid_t pid = ::fork();
  if (pid < 0)
    return fail_errno("fork", errno);
  if (pid == 0)
    become(helper, theirs.get(), speak.get(), argv.data(), env, groups.data(), groups.size());
  theirs.reset();
  speak.reset();
  file_socket::be_patient(ours.get(), patience_s);
  const Status talked = talk(ours.get());
  if (!talked) {
    std::string text = talked.error().message;
    for (char& c : text)
      if (c == '\n')
        c = ' ';
    (void)file_socket::send_all(
        ours.get(), fmt::format("error {}\n", text.substr(0, file_socket::line_bytes_max - 16)));
  }
  // It has what it needs: what remains is writing the last of it, and saying how that went.
  ::shutdown(ours.get(), SHUT_WR);
  int status = 0;
  const SteadyTime give_up = system_clock().steady() + seconds(talked ? patience_s : 5);
  while (::waitpid(pid, &status, WNOHANG) == 0) {
    if (system_clock().steady() > give_up) {
      ::kill(-pid, SIGKILL);
      ::waitpid(pid, &status, 0);
      break;
    }
    ::usleep(5'000);
  }
  std::string text(4096, '\0');
  const ssize_t n = ::read(hear.get(), text.data(), text.size());
  text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
    return talked;
  if (!trim(text).empty())
    return fail(Code::conflict, in_one_line(trim(text)));
  if (!talked)
    return talked;
  return fail(Code::conflict,
              WIFEXITED(status) && WEXITSTATUS(status) == 125
                  ? fmt::format("the job's directory {} cannot be entered", helper.cwd)
                  : "the copy was ended");
}

}  // namespace billow::agent
