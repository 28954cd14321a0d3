// Events of pools, their offers and their machines.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "core/model/pool.h"

namespace billow {

struct PoolAdded {
  static constexpr const char* kind = "pool_added";
  Pool pool;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("pool", s.pool);
  }
};
struct PoolRemoved {
  static constexpr const char* kind = "pool_removed";
  PoolId pool;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("pool", s.pool);
  }
};
// The provider refused an order and is not asked again before `until`; or, with `removing`, the
// pool no longer orders anything. Version 0.1 had only `until` and wrote INT64_MAX for the latter.
struct PoolDenied {
  static constexpr const char* kind = "pool_denied";
  PoolId pool;
  std::string reason;
  WallTime until;
  bool removing = false;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("pool", s.pool);
    v("reason", s.reason);
    v("until_ns", s.until);
    v("removing", s.removing);
  }
};
// Written before the provider is asked; of a twin, when a list shows it.
struct MachineWanted {
  static constexpr const char* kind = "machine_wanted";
  Machine machine;
  std::string why;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("machine", s.machine);
    v("why", s.why);
  }
};
struct MachineSeen {
  static constexpr const char* kind = "machine_seen";
  std::string machine;
  std::string external;
  std::string note;
  WallTime ends_at;
  WallTime billed_from;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("machine", s.machine);
    v("external", s.external);
    v("note", s.note);
    v("ends_at_ns", s.ends_at);
    v("billed_from_ns", s.billed_from);
  }
};
struct MachineReleased {
  static constexpr const char* kind = "machine_released";
  std::string machine;
  std::string reason;
  bool unused = false;  // no job ran on it although the job it was ordered for still waits
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("machine", s.machine);
    v("reason", s.reason);
    v("unused", s.unused);
  }
};
// The provider no longer has it (or never created it).
struct MachineGone {
  static constexpr const char* kind = "machine_gone";
  std::string machine;
  std::string reason;
  bool unused = false;  // as in MachineReleased
  std::optional<MachineBill> bill;
  NodeId account;  // of the books
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("machine", s.machine);
    v("reason", s.reason);
    v("unused", s.unused);
    v("bill", s.bill);
    v("account", s.account);
  }
};

// The provider refused one offer: offers of its scope are not ordered before `refusal.until`.
struct OfferRefused {
  static constexpr const char* kind = "offer_refused";
  PoolId pool;
  OfferRefusal refusal;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("pool", s.pool);
    v("refusal", s.refusal);
  }
};
struct PoolOffersSet {
  static constexpr const char* kind = "pool_offers_set";
  PoolId pool;
  std::vector<MachineOffer> offers;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("pool", s.pool);
    v("offers", s.offers);
  }
};
// The pool orders nothing until an administrator retries: its machines run no jobs.
struct PoolStopped {
  static constexpr const char* kind = "pool_stopped";
  PoolId pool;
  std::string reason;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("pool", s.pool);
    v("reason", s.reason);
  }
};
// The provider is asked again at once, whatever it refused before.
struct PoolRetried {
  static constexpr const char* kind = "pool_retried";
  PoolId pool;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("pool", s.pool);
  }
};

}  // namespace billow
