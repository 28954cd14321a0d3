// Pools and their machines. A pool says which machines Billow may order from one provider ("up to
// 16 nodes with 8 H100 each from this Slurm partition"). A machine is one order. It is written to
// the journal before the provider is asked, so a machine that the provider lists under Billow's
// name and that the journal does not know is a stray and can be ended.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/enums.h"
#include "base/ids.h"
#include "base/money.h"
#include "core/model/node.h"
#include "core/model/offer.h"

namespace billow {

// What the core may assume about the provider behind a pool. The kind of a pool is only a name to
// the core; it decides by these flags. They are journaled with the pool, so a replay does not
// depend on the current code for a kind.
struct PoolCapabilities {
  bool sizes_to_demand = false;        // a machine can be ordered with fewer GPUs than `Pool::gpus`
  bool several_nodes_at_once = false;  // one order can bring all nodes of a gang
  bool list_is_final = false;          // a machine that was listed once and is missing has ended
  bool from_offers = false;            // machines are ordered from `Pool::offers`
  bool bills_from_order = false;       // a machine costs from its order on, not from its joining
  // A list that lacks a machine ordered less than this long ago says nothing about it.
  Duration list_lag = seconds(15);
  // Machines come with a disk for `Machine::disk_mib`, at most this; 0: with one of their own size.
  std::int64_t disk_mib_max = 0;
  // The provider has disks that outlive machines, for `Pool::cache_gib`: the list price of a GiB
  // for a month. Zero: it has none.
  NanoUsd cache_gib_month;
  // Nodes are shared with others, so a gang is ordered no more of each than it asks for.
  bool gangs_share_nodes = false;
  bool operator==(const PoolCapabilities&) const = default;

  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("sizes_to_demand", s.sizes_to_demand);
    v("several_nodes_at_once", s.several_nodes_at_once);
    v("list_is_final", s.list_is_final);
    v("from_offers", s.from_offers);
    v("bills_from_order", s.bills_from_order);
    v("list_lag_ns", s.list_lag);
    v("disk_mib_max", s.disk_mib_max);
    v("cache_gib_month", s.cache_gib_month);
    v("gangs_share_nodes", s.gangs_share_nodes);
  }
};

enum class PoolState {
  active,
  removing,  // orders nothing; is removed when its last machine has ended
};
BILLOW_ENUM_NAMES(PoolState, {PoolState::active, "active"}, {PoolState::removing, "removing"});

// What machines of one kind turned out to offer, learned from the last one that joined. Its name,
// boot id, version, address and card numbers are empty.
struct LearnedShape {
  std::string instance;  // of the offer; empty: the pool has no offers
  NodeOffer node;
  bool operator==(const LearnedShape&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("instance", s.instance);
    v("node", s.node);
  }
};

// A machine that was ordered for a job and left without having run anything, while the job still
// waited. If it had joined, such a machine is not ordered for this job again.
struct UnusedMachine {
  JobId job;  // or the array it belongs to; zero: it was ordered for the pool's minimum
  std::string instance;
  std::string machine;
  bool joined = true;  // false: its agent never connected
  bool operator==(const UnusedMachine&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("job", s.job);
    v("instance", s.instance);
    v("machine", s.machine);
    v("joined", s.joined);
  }
};

// A machine that has left the state. Its provider may still list it for a while, or carry its order
// out again.
struct EndedMachine {
  std::string name;  // under which it was ordered
  std::string external;
  std::optional<MachineOffer> offer;
  std::int32_t gpus = 0;
  WallTime at;
  WallTime billed_to;
  bool operator==(const EndedMachine&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("name", s.name);
    v("external", s.external);
    v("offer", s.offer);
    v("gpus", s.gpus);
    v("at_ns", s.at);
    v("billed_to_ns", s.billed_to);
  }
};

struct Pool {
  PoolId id;
  std::string name;
  std::string kind = "command";    // a name from the registry in src/pool/kinds.cpp
  std::uint32_t machines_min = 0;  // kept even when no job needs them
  std::uint32_t machines_max = 1;
  Duration idle = minutes(5);      // a machine without work for this long is released
  Duration patience = minutes(2);  // after this long without a machine, the next pool is asked too
  std::int32_t order = 0;          // lower first; then the cheaper, then the older pool
  std::string gpu_type;            // "H100"; empty: machines without GPUs
  std::int32_t gpus = 0;           // of one machine
  Rate price;                      // of one machine; zero: not known
  bool spot = false;               // the provider may reclaim its machines
  std::string head_url;            // what its machines dial; empty: the head's own address
  std::map<std::string, std::string> labels;  // given to its nodes
  std::string sim;                            // its agents simulate their GPUs
  PoolState state = PoolState::active;
  std::optional<PoolCapabilities> capabilities;  // absent only in journals of version 0.1
  std::map<std::string, std::string> options;    // of its kind, as named in the registry
  // ---- options of the kinds "slurm" and "command", which were journaled as members
  std::string partition;
  std::string gres;  // "gpu:h100", without the count
  Duration time;     // of an allocation; zero: the partition's default
  std::vector<std::string> sbatch_args;
  std::string create_command, list_command, delete_command;
  // ---- the provider's last refusal
  WallTime denied_until;               // the provider is not asked again before
  std::string denied;                  // why
  std::vector<MachineOffer> offers;    // what may be ordered, if its kind orders from offers
  std::vector<OfferRefusal> refusals;  // oldest first
  std::string sealed_credential;       // an API key, sealed with the installation's key
  // ---- limits on what it spends
  NanoUsd spend_max_h;               // of all its machines, per hour; zero: no limit
  std::uint32_t per_minute_max = 0;  // machines ordered in one minute; 0: by `machines_max`
  NanoUsd ask_above_h;  // `billow run` on a terminal asks before it rents a machine above this
  std::vector<WallTime> recent_orders;  // of the last minute, except those that were refused
  std::uint32_t unused_in_row = 0;      // machines without a job since the last one that had one
  std::string stopped;  // why it orders nothing until an administrator retries; empty: it does
  std::vector<LearnedShape> learned;
  std::vector<UnusedMachine> unused;  // oldest first
  // Each of its machines gets a disk of this size that keeps images and models for the next machine
  // (renting/caches.h); 0: none.
  std::int64_t cache_gib = 0;
  std::vector<EndedMachine> ended;  // of the last hours, oldest first

  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("id", s.id);
    v("name", s.name);
    v("kind", s.kind);
    v("machines_min", s.machines_min);
    v("machines_max", s.machines_max);
    v("idle_ns", s.idle);
    v("patience_ns", s.patience);
    v("order", s.order);
    v("gpu_type", s.gpu_type);
    v("gpus", s.gpus);
    v("price_nano_usd_per_s", s.price.nano_usd_per_s);
    v("spot", s.spot);
    v("head_url", s.head_url);
    v("labels", s.labels);
    v("sim", s.sim);
    v("state", s.state);
    v("capabilities", s.capabilities);
    v("options", s.options);
    v("partition", s.partition);
    v("gres", s.gres);
    v("time_ns", s.time);
    v("sbatch_args", s.sbatch_args);
    v("create_command", s.create_command);
    v("list_command", s.list_command);
    v("delete_command", s.delete_command);
    v("denied_until_ns", s.denied_until);
    v("denied", s.denied);
    v("offers", s.offers);
    v("refusals", s.refusals);
    v("sealed_credential", s.sealed_credential);
    v("spend_max_h", s.spend_max_h);
    v("per_minute_max", s.per_minute_max);
    v("ask_above_h", s.ask_above_h);
    v("recent_orders", s.recent_orders);
    v("unused_in_row", s.unused_in_row);
    v("stopped", s.stopped);
    v("learned", s.learned);
    v("unused", s.unused);
    v("cache_gib", s.cache_gib);
    v("ended", s.ended);
  }
};

// The name under which a pool's credential is sealed, so that it opens for no other pool. A project
// cannot have a secret of such a name.
inline std::string pool_secret_name(const std::string& pool) {
  return "pool " + pool;
}

enum class MachineState {
  wanted,     // ordered; no agent of it has connected yet
  here,       // an agent of it has connected
  releasing,  // being released, until the provider no longer lists it
};
BILLOW_ENUM_NAMES(MachineState,
                  {MachineState::wanted, "wanted"},
                  {MachineState::here, "here"},
                  {MachineState::releasing, "releasing"});

// One order: a rented machine, an allocation of several nodes for a gang, or a disk for the caches
// of machines. A disk is ordered, listed, billed and ended like a machine, and has no nodes.
struct Machine {
  std::string name;  // unique; nodes of it are NAME, or NAME.0, NAME.1 … when there are several
  PoolId pool;
  std::uint32_t nodes = 1;
  std::int32_t gpus = 0;  // of each node
  // Of each node, what the jobs it is ordered for need; zero: not sized to them.
  std::int64_t cpu_milli = 0, mem_mib = 0;
  MachineState state = MachineState::wanted;
  WallTime wanted_at;
  WallTime here_at;
  WallTime idle_since;   // since when none of its nodes has work; zero: busy, or not here
  WallTime ends_at;      // when the provider ends it; zero: not known
  std::string external;  // the provider's name for it: a Slurm job number, an instance id
  std::string note;      // the provider's status of it: "PENDING (Resources)"
  std::string reason;    // why it is released
  std::optional<MachineOffer>
      offer;  // which of its pool's offers was ordered; absent: the pool has none
  JobId job;  // the first job it was ordered for; zero: none
  // ---- for the books
  NodeId account;               // what it costs while its nodes have not joined; zero: nothing
  std::vector<NodeId> booked;   // its nodes, also those that have left
  bool used = false;            // a job has started on it
  WallTime billed_from;         // by the provider's list; zero: not known
  std::int64_t disk_mib = 0;    // of each node, for the jobs it is ordered for; 0: as usual
  std::string cache;            // the disk that keeps its caches; empty: none
  std::int64_t volume_gib = 0;  // of a disk; 0: this is a machine
  std::string twin_of;          // the machine whose order brought this one too (renting/twins.h)

  bool is_disk() const { return volume_gib > 0; }

  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("name", s.name);
    v("pool", s.pool);
    v("nodes", s.nodes);
    v("gpus", s.gpus);
    v("state", s.state);
    v("wanted_at_ns", s.wanted_at);
    v("here_at_ns", s.here_at);
    v("idle_since_ns", s.idle_since);
    v("ends_at_ns", s.ends_at);
    v("external", s.external);
    v("note", s.note);
    v("reason", s.reason);
    v("offer", s.offer);
    v("job", s.job);
    v("account", s.account);
    v("booked", s.booked);
    v("used", s.used);
    v("billed_from_ns", s.billed_from);
    v("cpu_milli", s.cpu_milli);
    v("mem_mib", s.mem_mib);
    v("disk_mib", s.disk_mib);
    v("cache", s.cache);
    v("volume_gib", s.volume_gib);
    v("twin_of", s.twin_of);
  }
};

// What a machine cost from its order to its end, by the provider's rules.
struct MachineBill {
  std::string machine, pool;
  WallTime from, to;
  NanoUsd amount;
  NanoUsd correction;  // the part of it that the books did not have yet; may be negative
  bool used = false;   // false: no job ran on it, and all of it was wasted
  std::string reason;  // why it ended
  bool operator==(const MachineBill&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("machine", s.machine);
    v("pool", s.pool);
    v("from_ns", s.from);
    v("to_ns", s.to);
    v("amount", s.amount);
    v("correction", s.correction);
    v("used", s.used);
    v("reason", s.reason);
  }
};

// How the note of a machine begins that its provider does not end: it is billed, so lists show this
// before anything else.
inline constexpr std::string_view machine_not_ended = "cannot be ended: ";

// One machine as the provider lists it.
struct MachineSighting {
  std::string name;
  std::string external;
  std::string note;
  WallTime ends_at;
  // Set if the provider accepted the order and then could not keep the machine; `note` says why.
  // The order counts as refused, and the machine is released until it is no longer listed.
  std::optional<RefusalKind> failed;
  bool ended = false;               // nothing of it is left: it costs nothing and needs no release
  bool may_linger = false;          // ended by its provider's list, but processes may run on
  WallTime billed_from, billed_to;  // as far as the provider tells
  bool attached = false;            // a disk: some machine has it
  bool starting = false;            // it does not run yet, so nothing of it can have joined
  std::string twin_of = {};         // the name it is listed by, if another machine has that name
  bool operator==(const MachineSighting&) const = default;
};

}  // namespace billow
