// Who may hold how much of a server: connections, requests and body bytes in flight, and requests a
// second. For servers that parse HTTP themselves: HttpServer here, and the gateway's proxy.
//
// Every connection has a place. It belongs to a party: first to its peer (a remote address, a local
// user, the user behind a Unix socket), and once a request has proved who sends it, to that caller.
// A party that is full loses only its own oldest waiting connection. A server that is full drops
// the oldest waiting connection of strangers, then of callers, and refuses a newcomer only when
// nothing waits. Unix sockets and nodes have a reserve that the others cannot fill.
//
// Limits count for each party, whatever loop its connections are on: servers with several loops
// share one Admission (Threads::several), which then has a lock. A connection of another loop is
// dropped by that loop, a moment later; its place is free at once.
#pragma once

#include <array>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "net/http/http_server.h"

namespace billow::net {

// Users of this machine share its loopback address, so they are distinguished by their uid.
Peer peer_at(int fd);

class Admission : public std::enable_shared_from_this<Admission> {
 public:
  class Place;
  enum class Threads { one, several };
  explicit Admission(const ServerLimits& limits, Threads threads = Threads::one)
      : limits_(limits), shared_(threads == Threads::several) {}

  // A place for a new connection. Null: refused.
  std::shared_ptr<Place> enter(const Peer& peer, SteadyTime now);
  // Counts a refusal and logs it: the first at once, the rest summed up every ten seconds.
  void note(Refused reason, const std::string& peer, SteadyTime now);
  void report(SteadyTime now);  // logs what has been summed up
  ServerFigures figures() const;
  std::size_t connections() const {
    const auto lock = guard();
    return places_;
  }

 private:
  using Guard = std::unique_lock<std::recursive_mutex>;
  Guard guard() const { return shared_ ? Guard(mutex_) : Guard(); }
  struct Party {
    std::string name;
    CallerKind kind = CallerKind::stranger;
    std::size_t connections = 0;
    std::size_t requests = 0;
    std::uint64_t body_bytes = 0;
    std::uint64_t unsent_bytes = 0;
    double allowance = 0;  // requests that may come now
    SteadyTime filled_at;
    SteadyTime full_at;         // then it has its whole burst again, and may be forgotten
    std::list<Place*> waiting;  // the oldest first
  };
  struct Noted {
    std::uint64_t total = 0;
    std::uint64_t unlogged = 0;
    std::string last_peer;
    SteadyTime logged_at;
  };

  std::shared_ptr<Party> party(const std::string& name, CallerKind kind, SteadyTime now);
  const ShareLimits& share(const Place& place) const;
  std::size_t& count(CallerKind kind) { return counts_[static_cast<std::size_t>(kind)]; }
  std::size_t count(CallerKind kind) const { return counts_[static_cast<std::size_t>(kind)]; }
  std::size_t room(CallerKind kind) const;  // connections of this kind that may be open
  bool make_room(Party& party, CallerKind kind, const ShareLimits& share, SteadyTime now);
  bool drop_oldest(std::list<Place*>& waiting, SteadyTime now);
  void log_refusals(Refused reason, Noted& noted, SteadyTime now);

  ServerLimits limits_;
  const bool shared_;
  mutable std::recursive_mutex mutex_;  // a connection that is dropped comes back while it is held
  std::unordered_map<std::string, std::shared_ptr<Party>> parties_;
  std::size_t parties_sweep_at_ = 1024;
  std::array<std::list<Place*>, caller_kinds> waiting_;  // of each kind, the oldest first
  std::array<std::size_t, caller_kinds> counts_{};
  std::size_t places_ = 0;
  std::uint64_t body_bytes_ = 0;
  std::array<Noted, refused_reasons> noted_;
};

// What one connection holds. Its stream keeps it, also as a WebSocket.
class Admission::Place {
 public:
  Place(std::shared_ptr<Admission> in, std::shared_ptr<Party> party, std::string peer);
  ~Place();
  Place(const Place&) = delete;

  // `drop` closes the connection to make room for another one, while it waits for a request.
  void wait_with(std::function<void()> drop);
  // It was to be dropped, but has got a request before its loop could do so.
  void stay();
  // A request's head has arrived. An error is the answer: the caller has used up its share.
  Status begin(const Caller& caller, SteadyTime now);
  // The request is complete and must be answered: the connection cannot be dropped any more.
  void engage();
  Status add_body(std::uint64_t bytes, SteadyTime now);
  // How much of an answer waits until the client reads it. False: too much, of all connections of
  // the party together.
  bool set_unsent(std::uint64_t bytes, SteadyTime now);
  void end();     // the request has been answered
  void detach();  // the connection is closed or became a WebSocket: nothing drops it any more
  const std::string& peer() const { return peer_; }

 private:
  friend class Admission;
  void wait();
  void stop_waiting();
  void count(bool here);
  Status move_to(const Caller& caller, SteadyTime now);

  std::shared_ptr<Admission> in_;
  std::shared_ptr<Party> party_;
  std::string peer_;
  std::function<void()> drop_;
  ShareLimits share_;
  std::uint64_t body_bytes_ = 0;
  std::uint64_t unsent_bytes_ = 0;
  bool requesting_ = false;
  bool waiting_ = false;
  bool counted_ = false;
  std::list<Place*>::iterator in_party_;
  std::list<Place*>::iterator in_kind_;
};

}  // namespace billow::net
