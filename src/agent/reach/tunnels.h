// Connections into jobs, carried over the agent's own connection to the head (core/wire/tunnel.h).
// Each has a socket here (the job's port, or a secure shell's) and passes bytes on, in both
// directions, no more than either side can take.
//
// What holds: bytes come out as they went in, an end of file on one side leaves the other open,
// what one tunnel does not take holds up no other, and none outlives its task or the connection to
// the head.
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
  // What a tunnel ends at: a socket, connected or on its way; of a secure shell also what it is
  // known by.
  struct Door {
    Fd fd;
    std::string host_key, user;
  };
  struct Callbacks {
    std::function<Result<Door>(const wire::agent_v1::TunnelOpen&)> open;
    std::function<void(const wire::agent_v1::Tunnelled&, std::string_view blob)> send;
    std::function<void(TaskId, std::size_t bytes)> carried =
        {};  // of the job's own, on their way to whoever is at the other end; may be missing
  };
  Tunnels(net::Loop& loop, Callbacks callbacks);
  ~Tunnels();

  void take(const wire::agent_v1::Tunnelled& message, std::string_view blob);
  void close_of(TaskId task, const std::string& why);
  void close_all();  // the head is gone, and with it whoever was at the other end
  std::size_t count() const { return tunnels_.size(); }

 private:
  struct Tunnel;
  void open(const wire::agent_v1::TunnelOpen& request);
  void ready(std::uint64_t id, bool readable, bool writable);
  void receive(Tunnel& t);
  void flush(Tunnel& t);
  void cut(std::uint64_t id, const std::string& why);
  void settle(std::uint64_t
                  id);  // closes it where both ends have ended, else watches for what it waits for

  net::Loop& loop_;
  Callbacks callbacks_;
  std::map<std::uint64_t, std::unique_ptr<Tunnel>> tunnels_;
};

}  // namespace billow::agent
