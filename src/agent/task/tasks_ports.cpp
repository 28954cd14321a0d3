// The ports of this node's replicas: watched from start to end, and reported when their holder
// changes.
#include <fmt/format.h>

#include "agent/task/tasks.h"

namespace billow::agent {

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
