// What a provider rents: one kind of machine, at one place, for one price. A pool with offers
// orders whichever of them suits a job best; a pool without offers has machines of one kind
// (model/pool.h).
#pragma once

#include <string>

#include "base/clock.h"
#include "base/enums.h"
#include "base/money.h"

namespace billow {

struct MachineOffer {
  std::string instance;  // the provider's name for this kind of machine: "p5.48xlarge"
  std::string region;    // "us-east-1"
  std::string zone;      // "us-east-1a"; empty: the provider chooses
  bool spot = false;     // the provider may reclaim it
  std::string gpu_type;  // "H100"; empty: no GPUs
  std::int32_t gpus = 0;
  std::int32_t cpus = 0;        // 0: not known
  std::int64_t memory_mib = 0;  // 0: not known
  Rate price;                   // of one machine; zero: not known
  WallTime priced_at;           // when the price was read; zero: not known
  std::string reservation;      // capacity that is paid for already; ordered before all others
  // How the provider's meter counts: by whole steps of this length, at least for this long.
  Duration bill_step, bill_minimum;
  NanoUsd price_h;     // the hourly price, from which bills are computed; zero: 3600 × `price`
  std::string fabric;  // network between machines of this kind: "efa", "infiniband"; empty: none
  bool operator==(const MachineOffer&) const = default;

  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("instance", s.instance);
    v("region", s.region);
    v("zone", s.zone);
    v("spot", s.spot);
    v("gpu_type", s.gpu_type);
    v("gpus", s.gpus);
    v("cpus", s.cpus);
    v("memory_mib", s.memory_mib);
    v("price_nano_usd_per_s", s.price.nano_usd_per_s);
    v("priced_at_ns", s.priced_at);
    v("reservation", s.reservation);
    v("bill_step_ns", s.bill_step);
    v("bill_minimum_ns", s.bill_minimum);
    v("price_h", s.price_h);
    v("fabric", s.fabric);
  }
};

// Why a provider did not create a machine. The kind decides where the next order goes and how long
// the refusal is remembered.
enum class RefusalKind {
  no_answer,    // nobody knows whether the machine exists: the same order is repeated
  capacity,     // sold out at this place: the next place is asked
  quota,        // the account's limit for this region: another region is asked
  not_offered,  // this place does not have this kind of machine at all
  settings,     // wrong credentials, rights or parameters: an administrator must act
};
BILLOW_ENUM_NAMES(RefusalKind,
                  {RefusalKind::no_answer, "no_answer"},
                  {RefusalKind::capacity, "capacity"},
                  {RefusalKind::quota, "quota"},
                  {RefusalKind::not_offered, "not_offered"},
                  {RefusalKind::settings, "settings"});

// An offer that the provider refused. It stands for every offer of the same scope
// (core/control/renting/offers.h) until it expires, and is kept a while longer for `explain`.
struct OfferRefusal {
  MachineOffer offer;
  RefusalKind kind = RefusalKind::capacity;
  std::string reason;  // the provider's own words
  WallTime at;
  WallTime until;       // offers of its scope are not ordered before
  std::string machine;  // the order that was refused
  bool operator==(const OfferRefusal&) const = default;

  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("offer", s.offer);
    v("kind", s.kind);
    v("reason", s.reason);
    v("at_ns", s.at);
    v("until_ns", s.until);
    v("machine", s.machine);
  }
};

}  // namespace billow
