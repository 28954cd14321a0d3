// What a task has sent and used: the kernel's count of its traffic, and the meter in its directory.
#include <arpa/inet.h>
#include <fmt/format.h>

#include "agent/task/task_link.h"
#include "agent/task/tasks.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "core/wire/codec.h"

namespace billow::agent {

// Called before the first process, so that nothing is missed. For an adopted task it finds the
// counter of the earlier agent. `inside` has the addresses of its gang: what ranks send each other
// is not egress.
void Tasks::count_egress(TaskId task, const std::string& cgroup, const std::string& inside) {
  if (cgroup.empty())
    return;
  auto counter = EgressCounter::attach(cgroup);
  if (!counter)
    return log_debug("task {}: its traffic is estimated from its sockets: {}", task.value,
                     counter.error().message);
  for (const std::string& address : split(inside, ',')) {
    unsigned char bytes[16];
    for (const int family : {AF_INET, AF_INET6})
      if (::inet_pton(family, address.c_str(), bytes) == 1)
        (void)counter->leave_out(family, bytes);
  }
  egress_.insert_or_assign(task, std::move(*counter));
}

Status Tasks::can_close_metadata() const {
  if (options_.allow_metadata || (network_guard_ && cgroups_.tracks()))
    return {};
  return fail(
      Code::unsupported,
      fmt::format("this node cannot keep jobs from the cloud's metadata service: {}",
                  network_guard_ ? "no writable cgroup v2" : network_guard_.error().message),
      "use a system with cgroup v2, or let jobs run without the guard: `metadata unguarded` in the "
      "node's policy");
}

// Before its first process, and for a task that an older agent started.
Status Tasks::close_metadata(const std::string& cgroup) const {
  if (options_.allow_metadata)
    return {};
  BILLOW_TRY_VOID(can_close_metadata());
  if (cgroup.empty())
    return fail(Code::unavailable,
                "its control group is missing, which would keep the task from "
                "the cloud's metadata service");
  return network_guard_->attach(cgroup);
}

// The final count of its traffic; 0 if the kernel did not count all of it.
std::int64_t Tasks::all_sent(TaskId task, const std::string& cgroup) {
  std::int64_t bytes = 0;
  bool counted = false;
  if (const auto counter = egress_.find(task); counter != egress_.end()) {
    if (counter->second.found() || born_here_.contains(task)) {
      bytes = counter->second.bytes();
      counted = true;
    }
  } else if (const auto left = EgressCounter::find(cgroup)) {
    bytes = left->bytes();
    counted = true;
  }
  if (const auto sent = tunnelled_.find(task); counted && sent != tunnelled_.end())
    bytes += sent->second.before + sent->second.bytes;
  egress_.erase(task);
  tunnelled_.erase(task);
  born_here_.erase(task);
  return bytes;
}

void Tasks::perform(const effect::SaveMeter& e) {
  // Not synced: after a power cut the task is lost anyway, and a file that is a minute old only
  // counts that minute as busy.
  const std::string path = rights_->notes(e.task);
  const auto tunnelled = tunnelled_.find(e.task);
  const SavedMeter saved{
      e.meter, e.at,
      tunnelled == tunnelled_.end() ? 0 : tunnelled->second.before + tunnelled->second.bytes};
  if (file_exists(path))
    (void)write_file_atomic(path + "/meter", wire::to_json_text(saved), 0600);
}

}  // namespace billow::agent
