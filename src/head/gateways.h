// The gateways' connections: the table of endpoints out whenever it changes, wishes and figures in. A wish becomes a command like any
// other; figures are samples, of which the newest is kept in memory. One gateway is connected at a time.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gateway/table.h"
#include "head/engine.h"
#include "net/loop.h"
#include "net/websocket.h"

namespace billow::head {

class Gateways {
 public:
  struct Options {
    std::function<Engine&()> engine;
    std::function<std::string(NodeId)> host_of;   // where a node's ports are reached; empty: not known
  };
  Gateways(net::Loop& loop, Options options);
  ~Gateways();

  void adopt(std::shared_ptr<net::WebSocket> socket);
  void leave();                                    // tells all of them to end
  std::size_t count() const;
  std::vector<std::string> addresses() const;      // where they listen
  const gateway::EndpointFigures* figures(const std::string& endpoint) const;

 private:
  struct Link;
  void changed();
  std::string table() const;
  void heard(const std::shared_ptr<Link>& link, std::string_view text);
  void move(const gateway::MoveReplica& wish);
  void run(Command command);
  void accept_call(const std::shared_ptr<Link>& link, const gateway::AcceptCall& wish);
  void end_call(const std::shared_ptr<Link>& link, const gateway::EndCall& wish);
  void ask_call(const std::shared_ptr<Link>& link, const gateway::AskCall& wish);

  net::Loop& loop_;
  Options options_;
  std::vector<std::shared_ptr<Link>> links_;
  std::map<std::string, gateway::EndpointFigures> figures_;
  std::unique_ptr<api::Subscription> events_;
  net::Timer look_again_;
  bool posted_ = false, leaving_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace billow::head
