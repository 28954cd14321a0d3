// The ports of this node's replicas: watched from start to end, and reported when their holder
// changes.
#include <fmt/format.h>

#include "agent/isolate/replica_guard.h"
#include "agent/task/task_link.h"
#include "agent/task/tasks.h"
#include "base/log.h"

namespace billow::agent {
namespace {

// A unit of systemd gets another control group each time it starts.
constexpr Duration gateway_groups_every = seconds(1);

}  // namespace

// Before its first process. A replica that an earlier version of the agent started stays open: its
// gateway may not be in a group of gateways yet.
Status Tasks::close_replica_port(std::uint16_t port,
                                 const NodeRules& rules,
                                 const std::string& cgroup) {
  if (port == 0 || rules.replicas_closed == false)
    return {};
  gateway_groups_ = gateway_groups();
  const Status closed = cgroup.empty() ? fail(Code::unsupported, "it has no control group")
                                       : close_replica(cgroup, port, gateway_groups_);
  if (closed)
    return {};
  if (rules.replicas_closed == true)
    return fail(Code::unsupported,
                "this node cannot close the port of a replica to others than gateways, as its "
                "policy demands: " +
                    closed.error().message);
  log_debug("port {} of a replica answers everybody on this node: {}", port,
            closed.error().message);
  return {};
}

// Idempotent. Also after an agent has begun that does not know yet what the last one had found.
void Tasks::renew_closed_ports() {
  const SteadyTime now = system_clock().steady();
  if (now < gateway_groups_due_)
    return;
  gateway_groups_due_ = now + gateway_groups_every;
  auto found = gateway_groups();
  if (found == gateway_groups_)
    return;
  gateway_groups_ = std::move(found);
  for (const auto& [task, link] : links_)
    if (ports_.watches(task) && replica_closed(link->cgroup))
      if (const Status closed = close_replica(link->cgroup, ports_.port_of(task), gateway_groups_);
          !closed)
        log_warn("task {}: new gateways cannot call it: {}", task.value, closed.error().message);
}

void Tasks::watch_port(TaskId task, std::uint16_t port) {
  if (port == 0)
    return;
  ports_.add(task, port, system_clock().steady());
  look_at_port_of(task);
  look_at_ports();
}

// Checks the ports that are due, and sets the timer for the next.
void Tasks::look_at_ports() {
  ports_timer_.cancel();
  renew_closed_ports();
  for (const PortWatch::Seen& seen : ports_.look(system_clock().steady()))
    callbacks_.event(task_event::PortSeen{seen.task, seen.holder, 0, seen.astray});
  if (const auto next = ports_.next())
    ports_timer_ = loop_.after(std::max(*next - system_clock().steady(), milliseconds(1)),
                               [this] { look_at_ports(); });
}

void Tasks::look_at_port_of(TaskId task) {
  if (ports_.watches(task))
    callbacks_.event(task_event::PortSeen{task, ports_.look_at(task, system_clock().steady())});
}

void Tasks::perform(const effect::LookAtPort& e) {
  if (!ports_.watches(e.task))
    return;
  callbacks_.event(
      task_event::PortSeen{e.task, ports_.look_at(e.task, system_clock().steady()), e.number});
  look_at_ports();
}

// A replica that finds its port taken often ends by itself, with any exit code.
void Tasks::tell_port_taken(TaskStatus& status) {
  const std::uint16_t port = ports_.port_of(status.task);
  const bool by_itself = status.exit.kind == ExitKind::exited && status.exit.code != 0;
  if (port != 0 && (status.exit.port_taken || (by_itself && ports_.was_taken(status.task)))) {
    const std::string how = by_itself ? fmt::format(" ({})", status.exit.text()) : "";
    status.exit.port_taken = true;
    status.exit.message = fmt::format("another process uses its port {}{}", port, how);
  }
  ports_.remove(status.task);
}

}  // namespace billow::agent
