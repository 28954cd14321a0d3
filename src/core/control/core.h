// The core as its shells drive it: a state, and `execute`, which decides, applies, and follows
// reactions until there are no more. A step contains what the shell must write (events and finished
// jobs, in one batch) and what it may send once that batch is durable. Deterministic: the same
// commands at the same times give the same events. The live head, the fault simulator and
// `billow simulate` drive this same class.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/control/decide/decide.h"
#include "core/control/state.h"

namespace billow::control {

// A lease that has just ended, with the values of its row.
struct ClosedLease {
  Task task;
  ProjectId project;
  UserId user;
  NanoUsd charge;
  NanoUsd cost, idle;  // hardware cost, and the idle part of it
  std::int64_t energy_mj = 0;
  WallTime to;          // the end of the period of these amounts
  bool open = false;    // still held: a day was closed
  NanoUsd egress = {};  // the part of charge and cost that is for traffic
  std::int64_t egress_bytes = 0;
  // Copied, because the node may be gone before the row is written.
  std::string node_name = {};
  std::string gpu_type = {};
  std::int64_t card_mem_mib = 0;
  // Set if it differs from what the task held: the unused part of a reservation.
  std::optional<std::int64_t> milli = {};
};
// The cost of a node on a closed day, or until it was removed.
struct NodeDay {
  NodeId node;
  std::int64_t day = 0;
  NanoUsd cost;
  std::string name = {}, pool = {}, provider_id = {};
};

struct Step {
  std::vector<Event> events;
  std::vector<Effect> effects;  // may leave when the last of `events` is durable
  std::vector<FinishedJob> jobs;
  std::vector<FinishedArray> arrays;
  std::vector<ClosedLease> leases;
  std::vector<ledger::Entry> entries;
  std::vector<NodeDay> node_days;
  bool empty() const { return events.empty(); }
};

struct Cause {
  std::string actor;  // "user:ana", "node:gpu-1", "head"
  std::string request_id;
  TokenId token = {};     // of an API call
  std::string from = {};  // its peer
};

class Core {
 public:
  Core(State state, ledger::PriceBook prices)
      : state_(std::move(state)), prices_(std::move(prices)) {}

  const State& state() const { return state_; }
  const ledger::PriceBook& prices() const { return prices_; }

  // An error leaves the state unchanged. Wall time may jump; recorded time never runs backwards.
  // `billed` is the billing clock, which does not jump; 0: same as wall time.
  Result<Step> execute(const Command& command,
                       const Cause& cause,
                       WallTime now,
                       WallTime billed = {});
  // Starts what fits, in bounded portions; `more()` means that another call would find more,
  // `wake_at()` is when time alone will.
  Step plan(WallTime now, WallTime billed = {});
  // Decides what is due before any command: ends reservations at their exact time and posts days.
  Step catch_up(WallTime now, WallTime billed = {});
  bool more() const { return more_; }
  WallTime wake_at() const { return wake_at_; }
  // One recorded event, for replay.
  void replay(const Event& event) {
    apply(state_, event);
    forget_finished();
  }

 private:
  void follow(std::vector<EventBody> bodies,
              const Cause& cause,
              const Context& context,
              Step& step);
  void forget_finished();
  Context context_at(WallTime now, WallTime billed) const;

  State state_;
  ledger::PriceBook prices_;
  bool more_ = false;
  WallTime wake_at_;
};

// Events as stored in the journal: the kind, and a JSON document that also names the actor and the
// request.
std::string encode_event(const Event& event);
Result<Event> decode_event(Seq seq, WallTime at, std::string_view kind, std::string_view payload);

}  // namespace billow::control
