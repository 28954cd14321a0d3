// `billow keepalive` from inside a job: a socket in the abstract namespace of this machine, on which the kernel itself says who
// asks. So no token is needed, a job can speak for itself and for nobody else, and it works while the head is away.
//
// One line in ("7200 waiting for an approval": seconds and a reason), one line out ("ok 7200" or "error …").
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/file.h"
#include "base/result.h"
#include "net/loop.h"

namespace billow::agent {

inline constexpr const char* keepalive_variable = "BILLOW_AGENT_SOCKET";

class KeepAliveSocket {
 public:
  // Who asks, for how long, and why; the answer is how long it holds.
  using Ask = std::function<Result<Duration>(int pid, Duration lasts, std::string reason)>;
  static Result<std::unique_ptr<KeepAliveSocket>> listen(net::Loop& loop, const std::string& name, Ask ask);
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

// The other side.
Result<Duration> ask_keepalive(const std::string& name, Duration lasts, const std::string& reason);

}  // namespace billow::agent
