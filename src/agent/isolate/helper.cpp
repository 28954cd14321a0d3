#include "agent/isolate/helper.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "process/spawn.h"

namespace billow::agent {
namespace {

constexpr std::size_t line_bytes_max = 4 << 20;

// Whether it must be ended: because it was cancelled, or with the reason in `overdue`.
class Watch {
 public:
  explicit Watch(const Helper& helper)
      : helper_(helper), begun_(system_clock().steady()), alive_(begun_) {}

  bool must_end() {
    const SteadyTime now = system_clock().steady();
    if (helper_.progress && helper_.progress() != progress_) {
      progress_ = helper_.progress();
      alive_ = now;
    }
    if (helper_.quiet_max.ns > 0 && now - alive_ > helper_.quiet_max)
      overdue_ = fmt::format("{} was given up: no progress for {}", helper_.what,
                             format_duration(helper_.quiet_max));
    else if (helper_.within.ns > 0 && now - begun_ > helper_.within)
      overdue_ =
          fmt::format("{} was given up after {}", helper_.what, format_duration(helper_.within));
    return !overdue_.empty() || (helper_.cancelled && *helper_.cancelled);
  }
  void heard() { alive_ = system_clock().steady(); }
  const std::string& overdue() const { return overdue_; }

 private:
  const Helper& helper_;
  SteadyTime begun_, alive_;
  std::uint64_t progress_ = 0;
  std::string overdue_;
};

// Passes on whole lines and keeps the rest.
bool pass_lines(const Helper& helper, std::string& text) {
  std::size_t from = 0;
  for (auto at = text.find('\n'); at != std::string::npos; at = text.find('\n', from)) {
    helper.line(std::string_view(text).substr(from, at - from));
    from = at + 1;
  }
  text.erase(0, from);
  if (text.size() > line_bytes_max)
    text.clear();
  return from > 0;
}

}  // namespace

Result<int> run_helper(const Helper& helper) {
  process::Pipe out = BILLOW_TRY(process::Pipe::create());
  process::Spawn request;
  request.argv = helper.argv;
  request.env = helper.env;
  request.cwd = "/";
  request.identity = helper.identity;
  request.cgroups = helper.cgroups;
  request.in = helper.input >= 0 ? helper.input : process::null_device;
  request.out = out.write.get();
  request.group = process::Group::session;
  request.on_parent_death = SIGKILL;
  request.no_new_privs = true;
  request.whole_tree = true;
  process::Child child = BILLOW_TRY(process::spawn(request));
  out.write.reset();
  Watch watch(helper);
  std::string text;
  for (;;) {
    pollfd waiting{out.read.get(), POLLIN, 0};
    ::poll(&waiting, 1, 100);
    if (watch.must_end()) {
      const process::Ended ended = child.end_and_wait();
      if (!watch.overdue().empty())
        return fail(Code::timed_out, watch.overdue());
      return ended.code();
    }
    if (!waiting.revents)
      continue;
    char buffer[65536];
    const ssize_t n = ::read(out.read.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      break;
    text.append(buffer, static_cast<std::size_t>(n));
    if (pass_lines(helper, text))
      watch.heard();
  }
  return child.wait().code();
}

}  // namespace billow::agent
