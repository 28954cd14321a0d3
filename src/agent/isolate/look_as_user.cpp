#include "agent/isolate/look_as_user.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "process/each_entry_linux.h"
#include "process/spawn.h"

namespace billow::agent {
namespace {

constexpr Duration patience = seconds(3);  // also of a busy node, or to mount it first
constexpr Duration silent_for = minutes(1);

// System calls only: it runs in a forked process.
Sight look(const char* path) {
  const int fd = ::open(path, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0)
    return errno == ENOENT                      ? Sight::nothing
           : errno == ENOTDIR || errno == ELOOP ? Sight::used
                                                : Sight::closed;
  ::close(fd);
  const int found = process::each_entry(path, [](const char*) { return EEXIST; });
  return found == 0 ? Sight::empty : found == EEXIST ? Sight::used : Sight::closed;
}

}  // namespace

UserLooks::~UserLooks() {
  for (process::Child& child : stuck_)
    (void)child.release();
}

// Empty: no answer.
std::optional<int> UserLooks::ask(const std::string& whom,
                                  const std::optional<Identity>& user,
                                  const std::function<int()>& body) {
  const SteadyTime begun = system_clock().steady();
  std::erase_if(stuck_, [](process::Child& child) { return child.poll().has_value(); });
  std::erase_if(silent_, [&](const auto& entry) { return entry.second < begun; });
  if (silent_.contains(whom))
    return std::nullopt;
  process::Spawn request;
  request.body = body;
  request.identity = user;
  auto child = process::spawn(request);
  if (!child)
    return static_cast<int>(Sight::closed);
  for (int pause_us = 100; system_clock().steady() - begun < patience;
       pause_us = std::min(2 * pause_us, 20'000)) {
    if (const auto ended = child->poll())
      return ended->code();
    ::usleep(static_cast<useconds_t>(pause_us));
  }
  child->signal(SIGKILL);
  stuck_.push_back(std::move(*child));
  silent_[whom] = system_clock().steady() + silent_for;
  return std::nullopt;
}

Sight UserLooks::look(const std::optional<Identity>& user, const std::string& path) {
  const auto code = ask(user ? fmt::format("user {}", user->uid) : std::string("the agent"), user,
                        [&path] { return static_cast<int>(agent::look(path.c_str())); });
  if (!code)
    return Sight::silent;
  return *code < static_cast<int>(Sight::closed) ? static_cast<Sight>(*code) : Sight::closed;
}

bool UserLooks::answers(const std::string& path) {
  return ask(path, std::nullopt,
             [&path] {
               struct stat info {};
               (void)::stat(path.c_str(), &info);
               return 0;
             })
      .has_value();
}

}  // namespace billow::agent
