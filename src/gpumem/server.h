// The vault's two sockets. On the job socket (SOCK_SEQPACKET, anyone on the node who has a job's
// token) the shims connect; on the admin socket (SOCK_STREAM, mode 0600) the agent speaks one line
// per command:
//
//   add name=J token=T [suspendable=0|1] [strict=0|1] [reserve=BYTES]
//   device=UUIDHEX|-:MEMORY:CONTEXT:SHARE_MILLI … remove name=J · suspend name=J [mode=warm|cold]
//   [timeout_ms=N] · resume name=J swap out=J in=K [allowance=BYTES] [timeout_ms=N] · context
//   name=J bytes=N · status · ping
//
// Each answer is lines ended by an empty one; the first is "ok key=value …" or "error CODE
// MESSAGE".
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "gpumem/node.h"

namespace billow::gpumem {

struct ServerOptions {
  std::string job_socket, admin_socket;
  unsigned job_socket_mode = 0666;
  Node::Options node;
};

// Runs one admin command; what the socket answers, without the ending empty line.
std::string run_command(Node& node, const std::string& line);

class Server {
 public:
  static Result<std::unique_ptr<Server>> create(ServerOptions options);
  ~Server();
  void run();  // until stop(); callable from a signal handler's thread only through stop()
  void stop();
  Node& node() { return *node_; }

 private:
  Server() = default;
  void serve_jobs(Fd socket);
  void serve_admin(Fd socket);

  ServerOptions options_;
  std::unique_ptr<Node> node_;
  Fd jobs_, admin_, wake_;
};

}  // namespace billow::gpumem
