// The two sockets of the GPU memory service. Shims connect to the job socket (SOCK_SEQPACKET, open
// to every process on the node that has a job's token). On the admin socket (SOCK_STREAM, mode
// 0600) the agent sends one command per line:
//
//   add name=J token=T [suspendable=0|1] [strict=0|1] [reserve=BYTES]
//       device=UUIDHEX|-:MEMORY:CONTEXT:SHARE_MILLI …
//   remove name=J
//   suspend name=J [mode=warm|cold] [timeout_ms=N]
//   resume name=J
//   swap out=J in=K [allowance=BYTES] [timeout_ms=N]
//   checkpoint pids=P,… · restore pids=P,…
//   context name=J bytes=N · status · ping · stop
//
// An answer is one or more lines, ended by an empty one. The first is "ok key=value …" or
// "error CODE MESSAGE".
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "base/result.h"
#include "base/thread_group.h"
#include "gpumem/service.h"

namespace billow::gpumem {

struct ServerOptions {
  std::string job_socket, admin_socket;
  unsigned job_socket_mode = 0666;
  Service::Options service;
};

// Runs one admin command and returns its answer without the final empty line.
std::string run_command(Service& service, const std::string& line);

class Server {
 public:
  static Result<std::unique_ptr<Server>> create(ServerOptions options);
  ~Server();
  // Serves until `stop` or until `signal_fd` (a signalfd; -1: none) becomes readable, then closes
  // all connections and waits for the threads that serve them.
  void run(int signal_fd);
  void stop();

 private:
  Server() = default;
  void accept_loop(int signal_fd);
  void start_connection(Fd socket, bool from_job);
  void close_connections();
  void serve_job(Fd socket);
  void serve_admin(Fd socket);
  bool answer_line(int socket, const std::string& line);

  ServerOptions options_;
  std::unique_ptr<Service> service_;
  Fd jobs_, admin_, wake_;
  std::mutex connections_lock_;
  struct Connection {
    Fd socket;  // a duplicate, through which close_connections() shuts it down
    bool from_job = false;
    unsigned user = 0;
  };
  std::list<Connection> connections_;
  ThreadGroup threads_;
};

}  // namespace billow::gpumem
