// The agent's side of `billow keepalive`, which runs inside a job: a socket on which the kernel
// identifies the peer. So no token is needed, a job can keep only itself alive, and it works while
// the head is unreachable. Users without a job on this node are refused at once.
//
// The client side and the protocol are in net/ask_keepalive.h.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "agent/isolate/peer.h"
#include "base/file.h"
#include "base/result.h"
#include "net/ask_keepalive.h"
#include "net/loop.h"

namespace billow::agent {

class KeepAliveSocket {
 public:
  // Whether this peer may be one of a job; must be cheap.
  using Admits = std::function<bool(const SocketPeer&)>;
  // The process that asks, the duration and the reason. Returns the duration that was granted.
  using Ask =
      std::function<Result<Duration>(const SocketPeer& peer, Duration lasts, std::string reason)>;
  KeepAliveSocket(net::Loop& loop, Fd listener, Admits admits, Ask ask);
  ~KeepAliveSocket();

 private:
  struct Peer;
  void accept();
  void read(Peer& peer);

  net::Loop& loop_;
  Fd fd_;
  Admits admits_;
  Ask ask_;
  net::Watch watch_;
  std::vector<std::unique_ptr<Peer>> peers_;
};

}  // namespace billow::agent
