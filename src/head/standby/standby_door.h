// While a head stands by, it accepts connections at its own addresses and passes their bytes on to
// the head that leads. So every head of a store can be used: behind one name, one load balancer or
// one Kubernetes Service, and an upgrade can wait until the new standby answers.
//
// Invariants: it reads nothing of what it passes on, so TLS ends at the leader. A connection ends
// with the leader's end of it. It never passes on to itself. One network cannot fill it.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "net/address.h"
#include "net/loop.h"

namespace billow::head {

// Where the head that leads can be reached by the others; in the store as `text()`.
struct LeaderPlace {
  std::string identity;      // of that head
  std::string api, gateway;  // "10.0.0.7:7070"; empty: not reachable from elsewhere
  std::string text() const;
  static LeaderPlace parse(const std::string& text);
  bool operator==(const LeaderPlace&) const = default;
};

class StandbyDoor {
 public:
  struct Options {
    std::string identity;                   // of this head
    std::vector<std::string> api, gateway;  // where to listen; none: only signals are heard
  };
  // An address that is in use is left out, with a warning.
  explicit StandbyDoor(Options options);
  ~StandbyDoor();  // closes every connection and address

  // From any thread. Connections that are open stay.
  void lead_to(const LeaderPlace& place);
  // SIGTERM or SIGINT has arrived: this head is to end. As the first process of a container it
  // would not end by itself.
  bool was_told_to_end() const { return told_to_end_; }

 private:
  struct Passage;
  struct Door {
    net::Listener listener;
    bool is_gateway = false;
    net::Watch watch;
    net::Timer again;
  };
  void listen(const std::vector<std::string>& addresses, bool is_gateway);
  void watch(Door& door);
  void accept_all(Door& door);
  bool has_place_for(const std::string& peer) const;
  void admit(Fd client, const std::string& peer, const std::string& target);

  Options options_;
  net::Loop loop_;
  net::Watch signals_;
  net::Timer sweep_;
  std::vector<std::unique_ptr<Door>> doors_;
  std::vector<std::shared_ptr<Passage>> passages_;
  LeaderPlace told_, place_;  // as the store has it; as it is used
  std::atomic<bool> told_to_end_ = false;
  std::thread thread_;
};

}  // namespace billow::head
