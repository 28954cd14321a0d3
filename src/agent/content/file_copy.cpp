#include "agent/content/file_copy.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/content/file_socket.h"
#include "base/file.h"
#include "base/text.h"
#include "net/blocking_io.h"
#include "process/spawn.h"

namespace billow::agent {
namespace {

constexpr int helper_fd = 3;
constexpr int patience_s = 120;                   // of either side, between two pieces
constexpr Duration start_patience = seconds(10);  // with a directory that may not answer

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
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return fail_errno("socketpair", errno);
  Fd ours(ends[0]), theirs(ends[1]);
  process::Pipe said = BILLOW_TRY(process::Pipe::create());
  process::Spawn request;
  request.argv = {executable_dir() + "/billow", "stage", helper.into ? "--copy-in" : "--copy-out"};
  if (!helper.into && !helper.path.empty())
    request.argv.insert(request.argv.end(), {"--", helper.path});
  request.env = {"PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8"};
  request.cwd = helper.cwd;
  request.identity = helper.identity;
  request.no_new_privs = true;
  request.out = request.err = said.write.get();
  request.fds = {{theirs.get(), helper_fd}};
  request.group = process::Group::session;
  request.on_parent_death = SIGKILL;
  request.deadline = system_clock().steady() + start_patience;
  auto child = process::spawn(request);
  if (!child)
    return fail(Code::conflict,
                fmt::format("the copy could not be started: {}", child.error().message));
  theirs.reset();
  said.write.reset();
  net::set_timeouts(ours.get(), patience_s);
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
  child->set_deadline(system_clock().steady() + seconds(talked ? patience_s : 5));
  const process::Ended ended = child->wait();
  ::fcntl(said.read.get(), F_SETFL, O_NONBLOCK);
  std::string text(4096, '\0');
  const ssize_t n = ::read(said.read.get(), text.data(), text.size());
  text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  if (ended.ok())
    return talked;
  if (!trim(text).empty())
    return fail(Code::conflict, in_one_line(trim(text)));
  if (!talked)
    return talked;
  return fail(Code::conflict, ended.late
                                  ? "the copy took too long and was ended"
                                  : fmt::format("the copy failed with code {}", ended.code()));
}

}  // namespace billow::agent
