// The agent's side of `billow keepalive`, which runs inside a job: a socket in the abstract
// namespace, on which the kernel identifies the peer. So no token is needed, a job can keep only
// itself alive, and it works while the head is unreachable.
//
// The client side and the protocol are in net/ask_keepalive.h.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/file.h"
#include "base/result.h"
#include "net/ask_keepalive.h"
#include "net/loop.h"

namespace billow::agent {

class KeepAliveSocket {
 public:
  // The process that asks, the duration and the reason. Returns the duration that was granted.
  using Ask = std::function<Result<Duration>(int pid, Duration lasts, std::string reason)>;
  static Result<std::unique_ptr<KeepAliveSocket>> listen(net::Loop& loop,
                                                         const std::string& name,
                                                         Ask ask);
  ~KeepAliveSocket();

 private:
  struct Peer;
  KeepAliveSocket(net::Loop& loop, Fd fd, Ask ask);
  void accept();
  void read(Peer& peer);

  net::Loop& loop_;
  Fd fd_;
  Ask ask_;
  net::Watch watch_;
  std::vector<std::unique_ptr<Peer>> peers_;
};

}  // namespace billow::agent
