// The gateways' connections. The head sends the table of endpoints whenever it changes; gateways
// send wishes (such as "start a replica") and figures. A wish becomes a command like any other;
// of the figures only the newest are kept, in memory.
//
// Each replica is steered by one gateway: the one connected longest in the endpoint's region, or of
// all gateways if the endpoint is served anywhere. The other gateways pass their requests to it. A
// revision takes over when every gateway that steers it has found it healthy.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/control/decide/front_door.h"
#include "gateway/table.h"
#include "head/agent_links.h"
#include "head/engine.h"
#include "head/gateways/counts.h"
#include "net/http/websocket.h"
#include "net/loop.h"

namespace billow::head {

class Gateways {
 public:
  struct Options {
    std::function<Engine&()> engine;
    std::function<std::string(NodeId)>
        host_of;  // where a node's ports are reached; empty: not known
    std::function<AgentLinks::Port(TaskId)> port_of;  // who has a replica's port
    std::function<void(NodeId, const wire::agent_v1::LookAtPort&)>
        look;                                       // asks its agent to look again
    std::function<std::string(TaskId)> trouble_of;  // why a running replica does not serve
  };
  Gateways(net::Loop& loop, Options options);
  ~Gateways();

  void adopt(std::shared_ptr<net::WebSocket> socket, gateway::Dialled who);
  void leave();  // tells all of them to end
  std::size_t count() const;
  bool connected(const std::string& region) const { return link_of(region) != nullptr; }
  std::vector<std::string> addresses() const;  // where they listen
  control::GatewayNames names() const;         // host names that are not for domains
  // Of the certificate that the gateway at the first of them presents; empty: it has none.
  std::string fingerprint() const;
  const gateway::EndpointFigures* figures(const std::string& endpoint) const;
  // Connected ones, in the order in which they came; then those that have gone in the last day.
  std::vector<gateway::GatewayRow> list() const;
  void changed();  // what the table says may have: it is sent if it did
  // Calls back when every connected gateway works by the table of now; after a while in any case.
  void when_known(std::function<void()> fn);

 private:
  struct Link;
  void look_who_waits();
  std::string table(const Link& link) const;
  gateway::ReplicaRow replica_row(const Job& job) const;
  void add_keys(gateway::EndpointRow& row, const Endpoint& endpoint, const Link& link) const;
  void record_keys(Link& link, const std::vector<KeyUse>& uses);
  void record_counts(Link& link);
  void take_figures(const std::shared_ptr<Link>& link, const gateway::Figures& report);
  gateway::GatewayRow row_of(const Link& link) const;
  void remember(Link& link);
  void gone(const std::shared_ptr<Link>& link);
  const Link* leader() const;
  const Link* link_of(const std::string& region) const;
  bool is_first(const Link& link) const;
  bool is_successor(const Link& link) const;
  bool ready(const Link& link) const;  // for a table
  bool steers(const Link& link, const Endpoint& endpoint) const;
  const Link* owner(const Endpoint& endpoint, const Job& replica) const;
  void judged(const std::shared_ptr<Link>& link, const RevisionJudged& verdict);
  void add_up(const std::string& endpoint);
  void heard(const std::shared_ptr<Link>& link, std::string_view text);
  void move(const gateway::MoveReplica& wish);
  void look(const gateway::LookAtReplica& wish);
  void run(Command command);
  void accept_call(const std::shared_ptr<Link>& link, const gateway::AcceptCall& wish);
  void end_call(const std::shared_ptr<Link>& link, const gateway::EndCall& wish);
  void follow_calls(const Event& event);
  void take_call(const std::shared_ptr<Link>& link, const gateway::TakeCall& wish);
  void ask_call(const std::shared_ptr<Link>& link, const gateway::AskCall& wish);

  net::Loop& loop_;
  Options options_;
  std::vector<std::shared_ptr<Link>> links_;
  std::map<std::string, gateway::EndpointFigures> figures_;  // of all of them together
  EndpointCounts counts_;
  std::vector<gateway::GatewayRow> gone_;  // the last at the end
  std::map<std::string, std::pair<std::uint32_t, std::set<std::string>>>
      agreed_;  // by endpoint: a revision, and the regions it is healthy in
  std::map<std::string, std::string>
      waiting_;  // by endpoint: why a replica of it has no place; looked at now and then, for it
                 // costs a look at the queue
  void look_for_room();
  void add_limits(gateway::EndpointRow& row, const Endpoint& endpoint) const;
  // By endpoint: the revision that does not fit beside the serving one, and why.
  std::map<std::string, std::pair<std::uint32_t, std::string>> no_room_;
  std::map<std::string, std::set<std::pair<std::int64_t, std::string>>>
      calls_;  // that wait, by endpoint: since when, and their ids
  std::map<std::string, SteadyTime> gone_since_;  // regions whose gateway was there and is not
  struct Known {
    std::set<const Link*> waits_for;
    std::function<void()> fn;
    net::Timer patience;
  };
  void send_table(const std::shared_ptr<Link>& link, const std::string& text);
  void heard_of(const Link* link, std::uint64_t number);
  void known(std::uint64_t number);
  std::map<std::uint64_t, Known> asked_;
  std::uint64_t next_ask_ = 1;
  std::uint64_t peer_epoch_ = 0;  // changes when a gateway goes
  std::unique_ptr<net::Subscription> events_;
  net::Timer look_again_;
  bool posted_ = false, leaving_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace billow::head
