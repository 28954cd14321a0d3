#include "agent/content/volume_source.h"

#include <fmt/format.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "process/open_without_links_linux.h"

namespace billow::agent {
namespace {

constexpr int links_max = 40;  // as many as the kernel follows

class Walk {
 public:
  Walk(const std::string& source, std::uint32_t user) : source_(source), user_(user) {}

  Result<std::string> run() {
    struct stat root {};
    Fd top(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!top || ::fstat(top.get(), &root) != 0)
      return missing();
    system_ = root.st_uid;
    at_.push_back({std::move(top), ""});
    add(source_);
    while (!rest_.empty()) {
      const std::string name = std::move(rest_.back());
      rest_.pop_back();
      if (name.empty() || name == ".")
        continue;
      if (name != "..")
        BILLOW_TRY_VOID(step(name));
      else if (at_.size() > 1)
        at_.pop_back();
    }
    std::string out;
    for (const Part& part : at_)
      out += part.name.empty() ? "" : "/" + part.name;
    return out.empty() ? "/" : out;
  }

 private:
  struct Part {
    Fd fd;
    std::string name;
  };

  void add(std::string_view path) {
    auto parts = split(path, '/');
    std::ranges::move(parts.rbegin(), parts.rend(), std::back_inserter(rest_));
  }

  Status step(const std::string& name) {
    Fd fd(process::open_part(at_.back().fd.get(), name.c_str()));
    struct stat info {};
    // A server of files may close a directory to root that the job's user can enter. What lies
    // behind it is opened as that user.
    const bool closed = !fd && (errno == EACCES || !at_.back().fd);
    if (!closed && (!fd || ::fstat(fd.get(), &info) != 0))
      return missing();
    if (closed || !S_ISLNK(info.st_mode)) {
      at_.push_back({std::move(fd), name});
      return {};
    }
    return follow(fd.get(), name, info.st_uid);
  }

  Status follow(int link, const std::string& name, std::uint32_t owner) {
    if (owner != 0 && owner != system_ && owner != ::geteuid() && owner != user_)
      return fail(Code::forbidden,
                  fmt::format("the volume {} leads through the link \"{}\" of the user with number "
                              "{}, who could lead the job to other files",
                              source_, name, owner),
                  "declare the volume by its path without this link, or let root own the link");
    if (++links_ > links_max) {
      errno = ELOOP;
      return missing();
    }
    char target[PATH_MAX];
    const ssize_t size = ::readlinkat(link, "", target, sizeof target);
    if (size <= 0)
      return missing();
    const std::string_view path(target, static_cast<std::size_t>(size));
    if (path.starts_with('/'))
      at_.erase(at_.begin() + 1, at_.end());
    add(path);
    return {};
  }

  std::unexpected<Error> missing() const {
    return fail(Code::unavailable, fmt::format("the volume {} is not on this node: {}", source_,
                                               ::strerrordesc_np(errno)));
  }

  const std::string& source_;
  const std::uint32_t user_;
  std::uint32_t system_ = 0;  // in a user namespace it has another number
  int links_ = 0;
  std::vector<Part> at_;           // from the root on
  std::vector<std::string> rest_;  // the next one last
};

// Several slashes are one, for the kernel and for a head (in_system).
bool is_within(std::string_view path, std::string_view top) {
  const std::size_t at = std::min(path.find_first_not_of('/'), path.size());
  const std::string_view rest = path.substr(at == 0 ? 0 : at - 1);
  return rest.starts_with(top) && (rest.size() == top.size() || rest[top.size()] == '/');
}

}  // namespace

bool is_the_systems(const std::string& path) {
  constexpr std::string_view tops[] = {"/proc", "/sys", "/dev", "/run"};
  return path.find_first_not_of('/') == std::string::npos ||
         std::ranges::any_of(tops, [&](std::string_view top) { return is_within(path, top); });
}

Result<std::string> volume_source(const std::string& source, std::uint32_t user) {
  std::string real = BILLOW_TRY(Walk(source, user).run());
  if (is_the_systems(real))
    return fail(
        Code::forbidden,
        fmt::format("the volume cannot be {}: it leads to files of the system ({})", source, real),
        "a volume is a directory of data, not /, /proc, /sys, /dev or /run");
  return real;
}

}  // namespace billow::agent
