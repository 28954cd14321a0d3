// What the head said: the pieces of its live stream and the documents asked for beside it, with the
// last minutes of each figure. Text from the head is cleaned where it is drawn (canvas.h).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "client/frame/table.h"

namespace billow::client::top {

inline constexpr std::size_t trail_max = 180;  // samples of one figure
inline constexpr Duration sample_every = seconds(2);
inline constexpr std::size_t ended_max = 100;

// The last samples of one figure, the newest at the end; -1: not known.
class Trail {
 public:
  void add(std::int64_t value);
  std::size_t size() const { return values_.size(); }
  // The newest `count` as numbers; NaN where nothing is known.
  std::vector<double> newest(std::size_t count = trail_max) const;

 private:
  std::vector<std::int32_t> values_;
};

struct Card {
  std::string type, model, uuid, trouble, fault;
  std::int64_t mem_mib = 0, milli = 0, util = -1, mem = -1, watts = -1, celsius = -1, score = -1;
  std::int64_t reserved = 0;        // thousandths that a reservation keeps free
  std::vector<std::uint64_t> jobs;  // those the caller may see
  Trail busy, memory;               // percent
};
struct NodeEntry {
  std::uint64_t id = 0;
  std::string name, state, reason;
  std::vector<Card> cards;
  std::int64_t cpu_milli = 0, cpu_used = -1, mem_mib = 0, mem_used = -1;
  Trail busy;     // mean of its cards, percent
  int stale = 0;  // samples since a new stream began that has not named it yet
};
struct JobEntry {
  std::uint64_t id = 0;
  std::string label, name, command, user, project, state, reason;
  std::int64_t gpu_milli = 0, submitted = 0, started = 0, since = 0, ended = 0, ran = -1,
               suspended = 0, cost_nano = 0, rate_nano = 0, at = 0;
  bool array = false, spot = false;
  int stale = 0;
  std::vector<std::pair<std::uint64_t, std::vector<std::int64_t>>> where;  // node, cards

  bool waits() const { return state == "queued" || state == "held"; }
  bool has_ended() const { return ended != 0; }
  // How long it has run, was suspended, or has waited: whichever its state is about.
  std::int64_t spent_ms(std::int64_t now_ms) const;
  std::int64_t cost(std::int64_t now_ms) const;
};
struct EndpointEntry {
  std::string name;
  Json document;
  Trail requests;  // per second × 10
  std::int64_t requests_seen = -1, seen_ms = 0;
};
struct HeldCards {
  std::string project, name, node;
  std::vector<std::int64_t> gpus;
  std::int64_t from_ms = 0, until_ms = 0;
};
struct You {
  bool known = false;
  std::string user, role, scope;
  // Of the whole installation; heads of version 0.1 report none.
  std::set<std::string> permissions;
  bool may_change_jobs() const;
  bool may_drain() const;
};

enum class CardState { free, used, idle, reserved, drained, sick, lost };
struct CardWord {
  CardState state = CardState::free;
  std::string text;
  Colour colour = Colour::none;
};
struct CardCounts {
  std::int64_t all = 0, free_milli = 0;
  int reserved = 0, drained = 0, sick = 0, lost = 0;
};

struct Fleet {
  std::map<std::uint64_t, NodeEntry> nodes;
  std::map<std::uint64_t, JobEntry> jobs;
  std::deque<JobEntry> ended;         // seen to end, the newest first
  std::set<std::uint64_t> idle_jobs;  // by the head's definition
  std::int64_t running = 0, queued = 0, held = 0, suspended = 0, spend_nano = 0, idle_nano = 0;
  bool complete = false;  // the stream has said everything once
  std::string store = "ok";
  Trail busy, spend;  // percent of the fleet; micro-dollars per second
  std::map<std::string, EndpointEntry> endpoints;
  bool endpoints_known = false, money_known = false;
  std::vector<Json> budgets, costs;
  std::vector<HeldCards> reservations;
  std::map<std::uint64_t, std::string> why;  // of jobs that wait
  You you;

  void take(const Json& piece);  // of the live stream
  void begin_again();            // a new stream repeats everything
  void take_endpoints(const Json& answer, std::int64_t now_ms);
  void take_reservations(const Json& answer);
  void take_queue(const Json& answer);
  void take_fleet_history(const Json& answer);
  void take_status(const Json& answer);
  void sample();  // adds the present figures to the trails

  bool is_idle(const JobEntry& job) const;
  const JobEntry* job(std::uint64_t id) const;
  const NodeEntry* node_by_name(std::string_view name) const;
  CardWord word_of(const NodeEntry& node, std::size_t card, std::int64_t now_ms) const;
  CardCounts counts(std::int64_t now_ms) const;
  // "ana train": who holds a card; "another project" where the caller may not see it.
  std::string holder(const Card& card) const;
  // Mean use of a job's cards since it started, in percent.
  std::vector<double> busy_of(const JobEntry& job, std::int64_t now_ms) const;
  std::string places_of(const JobEntry& job) const;  // "rack1:0,1 rack2:3"
};

JobEntry read_live_job(const Json& row);

}  // namespace billow::client::top
