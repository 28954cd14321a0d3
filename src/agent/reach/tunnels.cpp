#include "agent/reach/tunnels.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <vector>

namespace billow::agent {

using namespace wire::agent_v1;

struct Tunnels::Tunnel {
  std::uint64_t id = 0;
  TaskId task;
  Target target;
  std::unique_ptr<net::FdWatch> watch;
  bool connected = false;
  bool ended_here = false;   // the job's side has ended, and the head was informed
  bool ended_there = false;  // the head sends nothing more
  bool shut = false;         // and the job's socket was shut down for writing
  std::uint64_t credit = tunnel_window_bytes;  // bytes that may be sent to the head
  std::uint64_t owed = 0;                      // consumed bytes of the head's window to return
  std::string to_job;
};

Tunnels::Tunnels(net::Loop& loop, Callbacks callbacks)
    : loop_(loop), callbacks_(std::move(callbacks)) {}
Tunnels::~Tunnels() = default;

void Tunnels::take(const Tunnelled& message, std::string_view blob) {
  if (const auto* request = std::get_if<TunnelOpen>(&message))
    return open(*request);
  const std::uint64_t id = std::visit([](const auto& m) { return m.tunnel; }, message);
  const auto found = tunnels_.find(id);
  if (found == tunnels_.end())
    return;  // it was closed here, and the head does not know yet
  Tunnel& t = *found->second;
  if (std::holds_alternative<TunnelData>(message)) {
    if (t.to_job.size() + blob.size() > tunnel_window_bytes)
      return cut(id, "the head sent more than the window allows");
    t.to_job += blob;
    flush(t);
  } else if (const auto* credit = std::get_if<TunnelCredit>(&message)) {
    t.credit += credit->bytes;
  } else if (const auto* end = std::get_if<TunnelEnd>(&message)) {
    // After both sides have ended, this only confirms it: the job may still read what was sent.
    if (end->cut && !(t.ended_here && t.ended_there))
      return (void)tunnels_.erase(id);
    t.ended_there = true;
  }
  settle(id);
}

void Tunnels::open(const TunnelOpen& request) {
  const auto refuse = [&](const std::string& why) {
    callbacks_.send(TunnelOpened{.tunnel = request.tunnel, .error = why}, {});
  };
  if (tunnels_.size() >= tunnels_per_node_max)
    return refuse(fmt::format("the node already has {} connections into jobs", tunnels_.size()));
  const auto theirs = std::count_if(tunnels_.begin(), tunnels_.end(), [&](const auto& one) {
    return one.second->task == request.task;
  });
  if (static_cast<std::size_t>(theirs) >= tunnels_per_task_max)
    return refuse(
        fmt::format("{} connections into this job are open already; close some first", theirs));
  auto target = callbacks_.open(request);
  if (!target)
    return refuse(target.error().message);
  auto made = std::make_unique<Tunnel>();
  made->id = request.tunnel;
  made->task = request.task;
  made->target = std::move(*target);
  Tunnel& t = *made;
  tunnels_[t.id] = std::move(made);
  t.watch = loop_.watch(t.target.fd.get(), [this, id = t.id](bool readable, bool writable) {
    ready(id, readable, writable);
  });
  t.watch->want(false, true);
}

void Tunnels::ready(std::uint64_t id, bool readable, bool writable) {
  const auto found = tunnels_.find(id);
  if (found == tunnels_.end())
    return;
  Tunnel& t = *found->second;
  if (!t.connected) {
    int error = 0;
    socklen_t length = sizeof error;
    ::getsockopt(t.target.fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) {
      callbacks_.send(TunnelOpened{.tunnel = id,
                                   .error = fmt::format("the job's port does not answer: {}",
                                                        ::strerror(error))},
                      {});
      tunnels_.erase(id);
      return;
    }
    t.connected = true;
    callbacks_.send(
        TunnelOpened{.tunnel = id, .host_key = t.target.host_key, .user = t.target.user}, {});
  }
  if (writable)
    flush(t);
  if (readable)
    receive(t);
  settle(id);
}

void Tunnels::receive(Tunnel& t) {
  if (t.ended_here || t.credit == 0)
    return;
  char buffer[tunnel_piece_bytes_max];
  const ssize_t n = ::recv(t.target.fd.get(), buffer,
                           std::min<std::size_t>(sizeof buffer, t.credit), MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR))
    return;
  if (n > 0) {
    t.credit -= static_cast<std::uint64_t>(n);
    if (callbacks_.carried)
      callbacks_.carried(t.task, static_cast<std::size_t>(n));
    return callbacks_.send(TunnelData{t.id}, std::string_view(buffer, static_cast<std::size_t>(n)));
  }
  t.ended_here = true;
  if (n == 0)
    return callbacks_.send(TunnelEnd{.tunnel = t.id}, {});
  t.ended_there = t.shut = true;
  t.to_job.clear();
  callbacks_.send(
      TunnelEnd{.tunnel = t.id,
                .error = fmt::format("the job closed the connection: {}", ::strerror(errno)),
                .cut = true},
      {});
}

void Tunnels::flush(Tunnel& t) {
  if (!t.connected)
    return;
  std::size_t done = 0;
  while (done < t.to_job.size()) {
    const ssize_t n = ::send(t.target.fd.get(), t.to_job.data() + done, t.to_job.size() - done,
                             MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0)
      done += static_cast<std::size_t>(n);
    else if (n < 0 && errno == EINTR)
      continue;
    else if (n < 0 && errno == EAGAIN)
      break;
    else {
      // The job no longer reads; it may still send.
      done = t.to_job.size();
      t.shut = true;
    }
  }
  t.to_job.erase(0, done);
  t.owed += done;
  if (t.owed >= tunnel_window_bytes / 4 || (t.owed > 0 && t.to_job.empty()))
    callbacks_.send(TunnelCredit{t.id, std::exchange(t.owed, 0)}, {});
}

void Tunnels::settle(std::uint64_t id) {
  const auto found = tunnels_.find(id);
  if (found == tunnels_.end())
    return;
  Tunnel& t = *found->second;
  if (t.connected && t.ended_there && t.to_job.empty() && !t.shut) {
    ::shutdown(t.target.fd.get(), SHUT_WR);
    t.shut = true;
  }
  if (t.ended_here && t.ended_there && t.to_job.empty()) {
    tunnels_.erase(found);
    return;
  }
  t.watch->want(t.connected && !t.ended_here && t.credit > 0, !t.connected || !t.to_job.empty());
}

void Tunnels::cut(std::uint64_t id, const std::string& why) {
  const auto found = tunnels_.find(id);
  if (found == tunnels_.end())
    return;
  const bool connected = found->second->connected;
  tunnels_.erase(found);
  if (connected)
    callbacks_.send(TunnelEnd{.tunnel = id, .error = why, .cut = true}, {});
  else
    callbacks_.send(TunnelOpened{.tunnel = id, .error = why}, {});
}

void Tunnels::close_of(TaskId task, const std::string& why) {
  std::vector<std::uint64_t> theirs;
  for (const auto& [id, t] : tunnels_)
    if (t->task == task)
      theirs.push_back(id);
  for (const std::uint64_t id : theirs) {
    // Bytes that the job wrote before it ended are still in the socket; send what the window
    // allows.
    Tunnel& t = *tunnels_.at(id);
    while (t.connected && !t.ended_here && t.credit > 0) {
      const std::uint64_t before = t.credit;
      receive(t);
      if (t.credit == before)
        break;
    }
    if (t.ended_here && t.ended_there)
      tunnels_.erase(id);
    else
      cut(id, why);
  }
}

void Tunnels::close_all() {
  tunnels_.clear();
}

}  // namespace billow::agent
