// `billow keepalive` from inside a job: a socket in the abstract namespace of this machine, on
// which the kernel itself says who asks. So no token is needed, a job can speak for itself and for
// nobody else, and it works while the head is away.
//
// The asking side, and what is said, is in net/ask_keepalive.h.
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
  // Who asks, for how long, and why; the answer is how long it holds.
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
