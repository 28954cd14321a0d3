// A gateway is replaced without a refused connection: its successor gets the listening sockets
// themselves, so that connections wait in their queue for a moment instead of being refused.
//
// The successor connects to hand-over.sock in the data directory, gets the sockets, and confirms.
// The old gateway then accepts no more, writes down what the successor continues with, lets go of
// the directory, and closes the connection: the sign for the successor to begin. A successor that
// dies before it confirms changes nothing.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "net/address.h"
#include "net/loop.h"

namespace billow::gateway {

// A listening socket of the old gateway.
struct HandedListener {
  std::string asked;  // as in --listen
  std::string bound;
  std::shared_ptr<Fd> fd;
};

// The old gateway's side.
class HandOver {
 public:
  struct Options {
    std::string directory;
    std::function<std::vector<HandedListener>()> listeners;
    // The successor has them. `let_go` ends the hand-over; what was released before is its own.
    std::function<void(std::function<void()> let_go)> handed;
  };
  static Result<std::unique_ptr<HandOver>> offer(net::Loop& loop, Options options);

 private:
  HandOver(net::Loop& loop, Options options) : loop_(loop), options_(std::move(options)) {}
  void accept();
  void confirmed();

  net::Loop& loop_;
  Options options_;
  net::Listener listener_;
  Fd successor_;
  net::Watch watch_, successor_watch_;
};

// The successor's side; blocks until the gateway in this directory has released it.
Result<std::vector<HandedListener>> take_over(const std::string& directory);

}  // namespace billow::gateway
