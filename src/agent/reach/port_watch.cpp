#include "agent/reach/port_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "base/text.h"

namespace billow::agent {
namespace {

constexpr Duration first_look_every = milliseconds(2);
constexpr Duration look_every = milliseconds(25), all_every = milliseconds(100);
constexpr Duration sure_after = milliseconds(30);  // before another owner is reported
// A server that has not got its port by then may listen on another one. Looking costs a read of all
// descriptors of the task.
constexpr Duration astray_after = seconds(1), astray_every_max = seconds(10);
constexpr std::size_t ports_named_max = 4;
constexpr int looks_per_wait = 32;  // a task that has been starting for 1 s is checked every 31 ms

enum class Bound {
  not_here,
  any_v6,
  any_v4,
  exact
};  // in the order in which the kernel prefers them

Bound bound(const ListeningSocket& socket, Reach reach) {
  const unsigned char* bytes = socket.address.sin6_addr.s6_addr;
  unsigned char four[4];
  std::memcpy(four, bytes, 4);
  if (!socket.v4) {
    if (IN6_IS_ADDR_UNSPECIFIED(&socket.address.sin6_addr))
      return Bound::any_v6;
    if (!IN6_IS_ADDR_V4MAPPED(&socket.address.sin6_addr))
      return reach == Reach::unknown ? Bound::exact : Bound::not_here;
    std::memcpy(four, bytes + 12, 4);
  }
  if (four[0] == 0)
    return Bound::any_v4;
  return reach == Reach::unknown || (four[0] == 127 && four[1] == 0 && four[2] == 0 && four[3] == 1)
             ? Bound::exact
             : Bound::not_here;
}

}  // namespace

Reach reach_of(const net::Address& head) {
  return head.is_unix() || head.host == "127.0.0.1" || head.host == "localhost" ? Reach::loopback
                                                                                : Reach::unknown;
}

std::vector<std::uint64_t> answering(const std::vector<ListeningSocket>& sockets,
                                     std::uint16_t port,
                                     Reach reach) {
  Bound best = Bound::not_here;
  std::vector<std::uint64_t> out;
  for (const ListeningSocket& socket : sockets) {
    if (socket.port() != port)
      continue;
    const Bound how = bound(socket, reach);
    if (how == Bound::not_here || how < best)
      continue;
    if (how > best)
      out.clear();
    best = how;
    out.push_back(socket.inode);
  }
  return out;
}

void PortWatch::add(TaskId task, std::uint16_t port, SteadyTime now) {
  Port& made = ports_[task];
  made.number = port;
  made.since = made.due = now;
  made.astray_due = now + astray_after;
}

std::uint16_t PortWatch::port_of(TaskId task) const {
  const auto found = ports_.find(task);
  return found == ports_.end() ? 0 : found->second.number;
}

bool PortWatch::still_has(const Port& port, std::uint64_t inode) {
  const auto known = port.own.find(inode);
  return known != port.own.end() && has_socket(known->second.first, known->second.second, inode);
}

bool PortWatch::all_own(TaskId task, Port& port, const std::vector<std::uint64_t>& inodes) {
  if (std::all_of(inodes.begin(), inodes.end(),
                  [&](std::uint64_t inode) { return still_has(port, inode); }))
    return true;
  port.own.clear();
  for (const int pid : sources_.processes(task)) {
    const auto has = sources_.sockets_of(pid);
    for (const std::uint64_t inode : inodes)
      if (const auto held = has.find(inode); held != has.end())
        port.own.emplace(inode, std::pair(pid, held->second));
    if (port.own.size() == inodes.size())
      return true;
  }
  return false;
}

PortHolder PortWatch::judge(TaskId task,
                            Port& port,
                            const std::vector<ListeningSocket>& sockets,
                            SteadyTime now) {
  const auto inodes =
      answering(sockets, port.number, sources_.reach ? sources_.reach() : Reach::loopback);
  port.has_it = false;
  port.all_due = now + all_every;
  if (inodes.empty()) {
    port.strange_since = {};
    return PortHolder::nobody;
  }
  if (all_own(task, port, inodes)) {
    port.strange_since = {};
    port.had_it = port.has_it = true;
    port.ever_own.insert(inodes.begin(), inodes.end());
    return PortHolder::task;
  }
  // A process that is being killed has no descriptors any more, but its socket is still listed.
  if (std::all_of(inodes.begin(), inodes.end(),
                  [&](std::uint64_t inode) { return port.ever_own.contains(inode); })) {
    port.strange_since = {};
    return PortHolder::nobody;
  }
  if (port.strange_since.ns == 0)
    port.strange_since = now;
  return now - port.strange_since >= sure_after ? PortHolder::other : PortHolder::nobody;
}

std::string PortWatch::where_instead(TaskId task,
                                     const Port& port,
                                     const std::vector<ListeningSocket>& sockets) const {
  std::set<std::uint64_t> own;
  for (const int pid : sources_.processes(task))
    for (const auto& [inode, fd] : sources_.sockets_of(pid))
      own.insert(inode);
  std::set<std::uint16_t> others;
  for (const ListeningSocket& socket : sockets) {
    if (!own.contains(socket.inode))
      continue;
    if (socket.port() == port.number)
      return fmt::format(
          "it listens on port {} at an address that the gateway cannot reach; listen on 127.0.0.1 "
          "or 0.0.0.0",
          port.number);
    others.insert(socket.port());
  }
  if (others.empty())
    return {};
  std::vector<std::string> named;
  for (const std::uint16_t other : others)
    if (named.size() < ports_named_max)
      named.push_back(fmt::format("{}", other));
  return fmt::format("it listens on port {}, not on {}; the port to use is in its variable PORT",
                     join(named, " and "), port.number);
}

std::vector<PortWatch::Seen> PortWatch::look(SteadyTime now) {
  std::vector<Seen> out;
  std::optional<std::vector<ListeningSocket>> sockets;  // read once for all tasks
  for (auto& [task, port] : ports_) {
    if (now < port.due)
      continue;
    const Port& seen = port;
    const bool enough = port.has_it && now < port.all_due &&
                        std::all_of(port.own.begin(), port.own.end(),
                                    [&](const auto& own) { return still_has(seen, own.first); });
    if (!enough && !sockets)
      sockets = sources_.sockets();
    Seen& told =
        out.emplace_back(Seen{task, enough ? PortHolder::task : judge(task, port, *sockets, now)});
    if (told.holder == PortHolder::task) {
      told.astray = "";
    } else if (told.holder == PortHolder::nobody && now >= port.astray_due && sockets) {
      told.astray = where_instead(task, port, *sockets);
      port.astray_due = now + std::clamp((now - port.since) / 8, astray_after, astray_every_max);
    }
    const Duration wait =
        port.had_it ? look_every
                    : std::clamp((now - port.since) / looks_per_wait, first_look_every, all_every);
    port.due = now + (port.strange_since.ns != 0 ? std::min(wait, sure_after) : wait);
  }
  return out;
}

PortHolder PortWatch::look_at(TaskId task, SteadyTime now) {
  const auto found = ports_.find(task);
  if (found == ports_.end())
    return PortHolder::unsaid;
  const PortHolder seen = judge(task, found->second, sources_.sockets(), now);
  if (found->second.strange_since.ns != 0)
    found->second.due = std::min(found->second.due, now + sure_after);
  return seen;
}

bool PortWatch::was_taken(TaskId task) const {
  const auto found = ports_.find(task);
  if (found == ports_.end() || found->second.had_it)
    return false;
  return !answering(sources_.sockets(), found->second.number,
                    sources_.reach ? sources_.reach() : Reach::loopback)
              .empty();
}

std::optional<SteadyTime> PortWatch::next() const {
  std::optional<SteadyTime> out;
  for (const auto& [task, port] : ports_)
    out = out ? std::min(*out, port.due) : port.due;
  return out;
}

}  // namespace billow::agent
