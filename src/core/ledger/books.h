// The two books. *Cost* shows where the money for the hardware went: active + allocated-idle +
// unallocated = the cost of the nodes, to the nano-dollar, for any window below the watermark.
// *Charge* shows what each project pays at the rates its leases began with.
//
// Everything is a function of facts (nodes with a price, leases, marks of active time) and of time:
// an amount up to a moment is rounded down once per piece of constant price and share, and a window
// is the difference of two such amounts. So windows add up whatever their borders, a crash loses
// nothing that is in the journal, and facts may arrive in any order. The rounding remainder (less
// than a nano-dollar per piece) falls to unallocated, which is the difference by definition.
//
// `close` moves the watermark and posts entries. Entries never change: a late fact about closed
// time leads to correction entries at the next close, and the sum of all entries always equals the
// amounts computed from the facts up to the watermark.
//
// Invariants: entries sum to the functions at the watermark; the same facts in the same order give
// the same entries; a fact seen twice (by its number) counts once; no lease is billed beyond its
// end, before its beginning or twice for one moment.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/money.h"
#include "base/result.h"
#include "core/model/states.h"

namespace billow::ledger {

// ---- facts
// From `at` on the node costs this much a second and has this much to lease (thousandths of a GPU,
// or of a core on nodes without GPUs).
struct NodePriced {
  NodeId node;
  WallTime at;
  Rate rate;  // of the whole node
  std::int64_t capacity_milli = 0;
};
struct NodeGone {
  NodeId node;
  WallTime at;
};
struct LeaseOpened {
  LeaseId lease;
  JobId job;
  TaskId task;
  ProjectId project;
  UserId user;
  NodeId node;
  std::string gpu_type;
  PriceClass price_class = PriceClass::on_demand;
  std::int64_t milli = 0;
  Rate rate;  // charged per whole GPU-second
  WallTime at;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("lease", s.lease);
    v("job", s.job);
    v("task", s.task);
    v("project", s.project);
    v("user", s.user);
    v("node", s.node);
    v("gpu_type", s.gpu_type);
    v("price_class", s.price_class);
    v("milli", s.milli);
    v("rate", s.rate);
    v("at_ns", s.at);
  }
};
// Suspended (class suspended, nothing held of the GPU), resumed, or moved to another node.
struct LeaseChanged {
  LeaseId lease;
  WallTime at;
  NodeId node;
  PriceClass price_class = PriceClass::on_demand;
  std::int64_t milli = 0;  // of the GPU; charged by `charged_milli`
  std::int64_t charged_milli = 0;
  Rate rate;
};
// The lease was held from its opening on, and is charged only from here.
struct LeaseBegan {
  LeaseId lease;
  WallTime at;
  std::int64_t charged_milli = 0;
};
struct LeaseClosed {
  LeaseId lease;
  WallTime at;
};
// Totals since the lease began. Time after the last mark counts as active until the next mark.
struct LeaseMarked {
  LeaseId lease;
  WallTime at;
  Duration active;
  std::int64_t energy_mj = 0;
};
// A one-off purchase while a lease ran: traffic. It adds to the node's cost, is assigned to this
// lease, and its project pays it.
struct LeaseExtra {
  LeaseId lease;
  NodeId node;
  WallTime at;
  NanoUsd amount;
  std::int64_t bytes = 0;
};
// A one-off cost of a node that belongs to no lease, such as the rest of a minimum billing time;
// or, below zero, what the provider did not bill after all.
struct NodeExtra {
  NodeId node;
  WallTime at;
  NanoUsd amount;
};
using Fact = std::variant<NodePriced,
                          NodeGone,
                          NodeExtra,
                          LeaseOpened,
                          LeaseChanged,
                          LeaseBegan,
                          LeaseClosed,
                          LeaseMarked,
                          LeaseExtra>;

// ---- entries
// The cost book is active + idle + unallocated, the charge book charge + egress; the cost of
// traffic is part of active.
enum class EntryKind { active, idle, unallocated, charge, egress };
struct Entry {
  std::uint64_t number = 0;
  EntryKind kind = EntryKind::active;
  NodeId node;    // of unallocated; for a lease, its last node
  LeaseId lease;  // none for unallocated
  JobId job;
  ProjectId project;
  UserId user;
  std::string gpu_type;
  PriceClass price_class = PriceClass::on_demand;
  WallTime from,
      to;  // the posting period; corrections: from the beginning of the books to `to`
  NanoUsd amount;
  bool correction = false;
  bool operator==(const Entry&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("number", s.number);
    v("kind", s.kind);
    v("node", s.node);
    v("lease", s.lease);
    v("job", s.job);
    v("project", s.project);
    v("user", s.user);
    v("gpu_type", s.gpu_type);
    v("price_class", s.price_class);
    v("from_ns", s.from);
    v("to_ns", s.to);
    v("amount", s.amount);
    v("correction", s.correction);
  }
};

struct Totals {
  NanoUsd fleet, active, idle, unallocated, charge;
  NanoUsd egress;  // the traffic's part of charge, and of active
  bool operator==(const Totals&) const = default;
};

class Books {
 public:
  // The journal numbers the facts; a fact with a number not above the last is skipped. A fact that
  // contradicts the others (an unknown lease, a negative capacity) is refused and changes nothing.
  Status apply(Seq seq, const Fact& fact);
  // Posts everything up to the new watermark, which only moves forward. Close at midnight UTC to
  // keep days apart.
  std::vector<Entry> close(WallTime watermark);
  WallTime watermark() const { return watermark_; }

  // Computed from the facts for any window; final for windows below the watermark.
  Totals totals(WallTime from, WallTime to) const;
  struct LeaseTotals {
    NanoUsd active, idle, charge;
    Duration held, active_time;
    std::int64_t energy_mj = 0;
    NanoUsd egress;  // part of active and of charge
    std::int64_t egress_bytes = 0;
  };
  LeaseTotals lease_totals(LeaseId lease, WallTime from, WallTime to) const;
  // The charge of a lease in a window, without looking at nodes; and its current charge per second.
  NanoUsd charge_between(LeaseId lease, WallTime from, WallTime to) const;
  Rate burn(LeaseId lease) const;
  bool knows(LeaseId lease) const { return leases_.contains(lease); }
  bool knows(NodeId node) const { return nodes_.contains(node); }
  NanoUsd fleet_between(NodeId node, WallTime from, WallTime to) const;
  NanoUsd time_cost(NodeId node, WallTime until) const;  // from its beginning, without purchases
  WallTime began(NodeId node) const;                     // when it first had a price; zero: never
  Rate node_rate(NodeId node) const;                     // the latest known
  std::vector<LeaseId> open_leases() const;
  const LeaseOpened* opened(LeaseId lease) const;
  // The time from which it holds what it holds; none: it is not known.
  WallTime last_change(LeaseId lease) const;
  // Removes closed leases that ended before this and are fully posted, and older marks of the
  // others; earlier windows can no longer be queried.
  void forget(WallTime before);

  // Everything as plain tables: `restore(image())` continues exactly as the original would.
  struct Image;
  Image image() const;
  static Books restore(const Image& image);

 private:
  friend struct BooksProbe;  // tests/unit/ledger
  struct NodeSpan {          // until the next; a rate of 0 and no capacity: removed
    WallTime from;
    Rate rate;
    std::int64_t capacity_milli = 0;
    bool same_terms(const NodeSpan& other) const {
      return rate == other.rate && capacity_milli == other.capacity_milli;
    }
    template <class S, class V>
    static constexpr void fields(S& s, V& v) {
      v("from_ns", s.from);
      v("rate", s.rate);
      v("capacity_milli", s.capacity_milli);
    }
  };
  struct NodeBook {
    std::map<std::int64_t, NodeSpan> spans;  // by their start
    std::map<std::int64_t, NanoUsd> extras;  // by purchase time
    NanoUsd posted_leases, posted_unallocated;
  };
  struct LeaseSpan {
    WallTime from;
    NodeId node;
    PriceClass price_class = PriceClass::on_demand;
    std::int64_t milli = 0, charged_milli = 0;
    Rate rate;
    bool same_terms(const LeaseSpan& other) const {
      return node == other.node && price_class == other.price_class && milli == other.milli &&
             charged_milli == other.charged_milli && rate == other.rate;
    }
    template <class S, class V>
    static constexpr void fields(S& s, V& v) {
      v("from_ns", s.from);
      v("node", s.node);
      v("price_class", s.price_class);
      v("milli", s.milli);
      v("charged_milli", s.charged_milli);
      v("rate", s.rate);
    }
  };
  struct Amounts {
    NanoUsd active, idle, charge, egress;
  };
  struct Extra {
    NodeId node;
    NanoUsd amount;
    std::int64_t bytes = 0;
  };
  struct LeaseBook {
    LeaseOpened opened;
    std::map<std::int64_t, LeaseSpan> spans;
    std::map<std::int64_t, std::pair<std::int64_t, std::int64_t>>
        marks;                             // at → active ns, energy mJ
    std::map<std::int64_t, Extra> extras;  // by purchase time
    std::optional<WallTime> closed;
    Amounts posted;
    std::map<NodeId, NanoUsd> posted_on;  // cost by node
  };
  Status add(const NodePriced& fact);
  Status add(const NodeGone& fact);
  Status add(const NodeExtra& fact);
  Status add(const LeaseOpened& fact);
  Status add(const LeaseChanged& fact);
  Status add(const LeaseBegan& fact);
  Status add(const LeaseClosed& fact);
  Status add(const LeaseMarked& fact);
  Status add(const LeaseExtra& fact);
  static std::int64_t active_ns_until(const LeaseBook& lease, std::int64_t at_ns);
  NanoUsd fleet_until(const NodeBook& node, WallTime until) const;
  void put_extra(LeaseBook& lease, WallTime at, const Extra& extra);
  void close_extras(LeaseBook& lease);
  static Extra bought_until(const LeaseBook& lease, WallTime until, std::map<NodeId, NanoUsd>* on);
  // Amounts of a lease from its beginning; `on` receives the cost by node.
  Amounts amounts_until(const LeaseBook& lease,
                        WallTime until,
                        std::map<NodeId, NanoUsd>* on) const;
  void post_leases(WallTime until, bool correction, std::vector<Entry>& out);
  void post_nodes(WallTime until, bool correction, std::vector<Entry>& out);
  void thin_marks(LeaseBook& lease, WallTime before) const;
  void thin_extras(WallTime before);

  Seq last_seq_ = 0;
  std::uint64_t next_entry_ = 1;
  WallTime watermark_;
  WallTime kept_from_;
  std::map<NodeId, NodeBook> nodes_;
  std::map<LeaseId, LeaseBook> leases_;
};

struct Books::Image {
  struct Node {
    NodeId id;
    std::vector<NodeSpan> spans;
    NanoUsd posted_leases, posted_unallocated;
    std::vector<std::int64_t> extras;  // two numbers each: at, amount
    template <class S, class V>
    static constexpr void fields(S& s, V& v) {
      v("id", s.id);
      v("spans", s.spans);
      v("posted_leases", s.posted_leases);
      v("posted_unallocated", s.posted_unallocated);
      v("extras", s.extras);
    }
  };
  struct Lease {
    LeaseOpened opened;
    std::vector<LeaseSpan> spans;
    std::vector<std::int64_t> marks;  // three numbers each: at, active, energy
    bool is_closed = false;
    WallTime closed;
    std::vector<std::int64_t> posted;  // active, idle, charge; then alternating node and amount
    NanoUsd posted_egress;
    std::vector<std::int64_t> extras;  // four numbers each: at, node, amount, bytes
    template <class S, class V>
    static constexpr void fields(S& s, V& v) {
      v("opened", s.opened);
      v("spans", s.spans);
      v("marks", s.marks);
      v("is_closed", s.is_closed);
      v("closed_ns", s.closed);
      v("posted", s.posted);
      v("posted_egress", s.posted_egress);
      v("extras", s.extras);
    }
  };
  Seq last_seq = 0;
  std::uint64_t next_entry = 1;
  WallTime watermark, kept_from;
  std::vector<Node> nodes;
  std::vector<Lease> leases;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("last_seq", s.last_seq);
    v("next_entry", s.next_entry);
    v("watermark_ns", s.watermark);
    v("kept_from_ns", s.kept_from);
    v("nodes", s.nodes);
    v("leases", s.leases);
  }
};

// ---- time for money
// Bills need a clock that never runs backwards and never skips. Within one boot it advances by
// steady time, whatever happens to the wall clock; across a restart it advances by wall time, or
// not at all if the wall clock went back.
class BillingClock {
 public:
  WallTime at(WallTime wall, SteadyTime steady, std::string_view boot_id);
  // After a crash: continues from the newest moment in the journal.
  void resume_from(WallTime newest);

 private:
  WallTime now_;
  SteadyTime steady_;
  std::string boot_id_;
};

// ---- prices of owned hardware
struct OwnedHardware {
  NanoUsd purchase;                 // of the node
  std::int64_t years_milli = 4000;  // depreciation period
  std::int64_t power_w = 0;         // on average, at the wall
  std::int64_t pue_milli = 1300;    // cooling and losses: 1.3 watts drawn per watt used
  NanoUsd per_kwh;
  NanoUsd upkeep_per_year;  // space, people, support
};
Result<Rate> owned_rate(const OwnedHardware& hardware);

// ---- energy
struct Energy {
  double kwh = 0, co2e_kg = 0;
};
Energy energy(std::int64_t energy_mj, double grid_g_per_kwh);

}  // namespace billow::ledger

namespace billow {
BILLOW_ENUM_NAMES(ledger::EntryKind,
                  {ledger::EntryKind::active, "active"},
                  {ledger::EntryKind::idle, "idle"},
                  {ledger::EntryKind::unallocated, "unallocated"},
                  {ledger::EntryKind::charge, "charge"},
                  {ledger::EntryKind::egress, "egress"});
}
