// Which replica a request goes to, and which requests wait: the pure half of the gateway, one
// Router for each endpoint. It has no clock and no socket; the proxy and the trace replay drive the
// same class.
//
// Rules
// - A request goes to the least busy of the replicas that the load needs (`spread_over`, the oldest
//   first); the others get requests only if all of these are full. So they become idle and can
//   sleep; spread over all, none ever would. The owner may choose another rule (EndpointBalance):
//   the least busy of all, the fullest, or the one with the least latency times its requests. The
//   latency of a replica decays to the mean of all, so that a slow one is tried again. Requests of
//   language models can go to the replica that has the least to read before their first token
//   (prompt_work.h).
// - A request that names a replica, or a sender whose requests belong together, goes to that
//   replica if it is ready, has a free slot and is not much busier than the others.
// - While a canary runs, a request that was chosen for it goes to one of its replicas. If none has
//   a free slot, it goes to the old revision: a canary that is too small or too slow delays no
//   request.
// - First come, first served: while a request is held, new ones are held behind it. A retried
//   request keeps its place.
// - The queue is bounded and every request in it has a deadline. Beyond the bound a request is
//   refused at once, with an estimate of when to retry.
// - A replica that leaves (drains, sleeps, stops) gets no new request and finishes its current
//   ones. `releasable` tells when it may be suspended or stopped: never while it serves.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/limits.h"
#include "core/model/endpoint.h"
#include "gateway/pure/prompt_work.h"

namespace billow::gateway {

enum class Phase {
  starting,  // has not passed its health check yet
  ready,
  leaving,    // finishes its requests and takes no more
  falling,    // idle and being suspended: takes no more, but can be called back
  suspended,  // sleeps in memory
  resuming,
};

struct Replica {
  ReplicaKey key = 0;
  Phase phase = Phase::starting;
  bool current = true;  // has the serving revision; others get no new requests
  bool canary = false;  // has the canary's revision: gets only requests that were chosen for it
  bool spot = false;
  bool stuck = false;  // asked to wake, and what it needs is in use: no help
  std::uint32_t in_flight = 0;
  std::uint32_t of_predecessor = 0;  // of these, how many another gateway has sent there
  SteadyTime since;                  // of its phase
  SteadyTime idle_since;             // when its last request ended
  double latency_s = 0;              // to the first byte, a decaying mean; 0: not known
  SteadyTime latency_at;             // when it was measured last
};

// Where a request should go if it can.
struct Wish {
  bool canary = false;
  Prompt prompt;             // of a language model, if the endpoint is balanced by prompts
  ReplicaKey replica = 0;    // that has served its sender before; 0: none is known
  std::uint64_t sender = 0;  // a hash; requests of one sender belong together. 0: nobody
};

struct Held {
  SteadyTime since;
  SteadyTime deadline;
  ReplicaKey avoid = 0;  // the replica that failed it; used only if there is no other
  Wish wish;
};

class Router {
 public:
  struct Options {
    std::uint32_t concurrency = 8;  // concurrent requests per replica; 0: no limit
    std::size_t queue_max = limits::endpoint_queue_max;
    EndpointBalance balance = EndpointBalance::automatic;
  };
  enum class Verdict { go, held, full };
  struct Answer {
    Verdict verdict = Verdict::held;
    ReplicaKey replica = 0;
  };
  struct Assigned {
    RequestId request = 0;
    ReplicaKey replica = 0;
    Duration waited;
  };

  Router() = default;
  explicit Router(Options options) : options_(options) {}
  void configure(Options options) { options_ = options; }
  const Options& options() const { return options_; }
  // How many replicas share the requests evenly. 0: each is filled before the next is used.
  void spread_over(std::uint32_t replicas) { spread_ = replicas; }

  // A new request, or a retry (then `avoid` names the failed replica, and the first arrival
  // counts).
  Answer arrive(
      RequestId request, SteadyTime now, SteadyTime deadline, ReplicaKey avoid = 0, Wish wish = {});
  // A slot of a canary's replica for a copy of a request; zero: none is free.
  ReplicaKey take_canary();
  // Requests that the gateway before this one still has at replicas: they count as in flight.
  void predecessor_has(const std::map<ReplicaKey, std::uint32_t>& busy, SteadyTime now);
  // The client has disconnected, or the caller gives up. True: it was held.
  bool cancel(RequestId request) { return held_.erase(request) > 0; }
  // One request of a replica has ended (0: one that did not arrive here). `dispatch` assigns the
  // free slot.
  void finished(ReplicaKey replica, SteadyTime now, RequestId request = 0);
  // What answers tell about prompts.
  PromptWork& prompts() { return prompts_; }
  // How long a replica took to begin an answer.
  void took(ReplicaKey replica, Duration latency, SteadyTime now);
  // Assigns free slots to held requests, oldest first.
  std::vector<Assigned> dispatch(SteadyTime now);
  // Removes requests whose deadline has passed.
  std::vector<RequestId> expire(SteadyTime now);

  Replica& replica(ReplicaKey key, SteadyTime now);  // created on first use
  Replica* find(ReplicaKey key);
  void set_phase(ReplicaKey key, Phase phase, SteadyTime now);
  void remove(ReplicaKey key) {
    replicas_.erase(key);
    prompts_.forget(key);
  }
  static bool releasable(const Replica& replica) { return replica.in_flight == 0; }

  const std::map<ReplicaKey, Replica>& replicas() const { return replicas_; }
  std::size_t held() const { return held_.size(); }
  const std::map<RequestId, Held>& queue() const { return held_; }
  std::uint32_t in_flight() const;
  // Requests that another region serves on our behalf.
  void lent(bool more) { more ? ++lent_ : lent_ -= lent_ > 0; }
  std::uint32_t lent() const { return lent_; }
  Duration oldest_wait(SteadyTime now) const;
  // Seconds until a refused client should retry: the time to work off the queue at the measured
  // service time, 1 to 60.
  int retry_after_s(Duration service_time) const;

 private:
  ReplicaKey choose(ReplicaKey avoid, const Wish& wish, SteadyTime now);  // zero: no free slot
  ReplicaKey pick_fastest(ReplicaKey avoid, SteadyTime now) const;
  ReplicaKey pick(ReplicaKey avoid, bool canary) const;
  ReplicaKey pick_by_prompt(ReplicaKey avoid, const Prompt& prompt, SteadyTime now) const;
  // The request gets a slot of the replica.
  void take(ReplicaKey replica, RequestId request, const Wish& wish, SteadyTime now);
  ReplicaKey pick_sticky(ReplicaKey avoid, bool canary, const Wish& wish) const;

  Options options_;
  std::uint32_t spread_ = 0;
  std::map<ReplicaKey, Replica> replicas_;
  std::uint32_t lent_ = 0;
  std::map<RequestId, Held> held_;  // numbers rise with arrival, so this is the queue in order
  PromptWork prompts_;
};

// Whether a failed request may be sent to another replica. An answer that the client has begun to
// read cannot be taken back, and a request that a replica may have executed is repeated only if
// that is harmless: by its method, by a key that the application understands, or because not one
// byte was sent.
struct Failure {
  bool answer_began = false;       // a byte of the answer was sent to the client
  bool sent_anything = false;      // a byte of the request may have reached the replica
  bool repeatable_method = false;  // GET, HEAD, PUT, DELETE, OPTIONS
  bool has_idempotency_key = false;
  bool body_kept = true;  // the body, or all of it so far, is still available
  std::uint32_t tries = 1;
  // Replicas that failed after they had got it. A request that makes its replica fail takes two of
  // them, not all.
  std::uint32_t lost = 0;
};
bool may_retry(const Failure& failure);

}  // namespace billow::gateway
