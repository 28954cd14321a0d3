// Connections into jobs, carried over the agent's connection to the head (core/wire/tunnel.h). Each
// tunnel has a socket here (to the job's port or to an sshd) and forwards bytes in both directions,
// no faster than either side reads them.
//
// Guarantees: bytes arrive unchanged and in order; an end of file on one side leaves the other side
// open; a slow tunnel delays no other; no tunnel outlives its task or the connection to the head.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/file.h"
#include "base/result.h"
#include "core/wire/tunnel.h"
#include "net/loop.h"

namespace billow::agent {

class Tunnels {
 public:
  // The job's end of a tunnel: a socket that is connected or connecting; for SSH also the host key
  // and the user name.
  struct Target {
    Fd fd;
    std::string host_key, user;
  };
  struct Callbacks {
    std::function<Result<Target>(const wire::agent_v1::TunnelOpen&)> open;
    std::function<void(const wire::agent_v1::Tunnelled&, std::string_view blob)> send;
    // Bytes that the job sent through a tunnel; may be missing.
    std::function<void(TaskId, std::size_t bytes)> carried = {};
  };
  Tunnels(net::Loop& loop, Callbacks callbacks);
  ~Tunnels();

  void take(const wire::agent_v1::Tunnelled& message, std::string_view blob);
  void close_of(TaskId task, const std::string& why);
  void close_all();  // the connection to the head is lost
  std::size_t count() const { return tunnels_.size(); }

 private:
  struct Tunnel;
  void open(const wire::agent_v1::TunnelOpen& request);
  void ready(std::uint64_t id, bool readable, bool writable);
  void receive(Tunnel& t);
  void flush(Tunnel& t);
  void cut(std::uint64_t id, const std::string& why);
  // Closes the tunnel if both sides have ended; otherwise watches for the events it waits for.
  void settle(std::uint64_t id);

  net::Loop& loop_;
  Callbacks callbacks_;
  std::map<std::uint64_t, std::unique_ptr<Tunnel>> tunnels_;
};

}  // namespace billow::agent
