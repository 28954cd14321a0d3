// Where a job may run beyond its resources, and how a project shares the installation with others,
// as users write it on the command line. The scheduler reads the same values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/enums.h"
#include "base/money.h"

namespace billow {

// How close together the nodes of a gang are.
enum class Closeness { anywhere, region, zone, rack, switch_ };
BILLOW_ENUM_NAMES(Closeness,
                  {Closeness::anywhere, "anywhere"},
                  {Closeness::region, "region"},
                  {Closeness::zone, "zone"},
                  {Closeness::rack, "rack"},
                  {Closeness::switch_, "switch"});
enum class Spread { pack, spread };
BILLOW_ENUM_NAMES(Spread, {Spread::pack, "pack"}, {Spread::spread, "spread"});

// Empty lists allow everything; any of several names matches.
struct PlaceWish {
  std::vector<std::string> regions, zones, pools, fabrics;
  std::string placement_group;
  Closeness close = Closeness::zone;
  bool close_required = false;   // false: preferred
  bool nvlink_required = false;  // the GPUs of one task reach each other over NVLink
  Spread spread = Spread::pack;
  NanoUsd max_price;  // of one GPU for one hour, on rented machines; zero: no limit

  bool operator==(const PlaceWish&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("regions", s.regions);
    v("zones", s.zones);
    v("pools", s.pools);
    v("fabrics", s.fabrics);
    v("placement_group", s.placement_group);
    v("close", s.close);
    v("close_required", s.close_required);
    v("nvlink_required", s.nvlink_required);
    v("spread", s.spread);
    v("max_price_nano_usd_per_gpu_h", s.max_price.value);
  }
};

// The order of jobs inside a project; between projects, weights decide. fair: the user with the
// least usage first; fifo: strictly in submit order; shortest: by declared or learned duration.
enum class OrderPolicy { fair, shortest, fifo };
BILLOW_ENUM_NAMES(OrderPolicy,
                  {OrderPolicy::fair, "fair"},
                  {OrderPolicy::shortest, "shortest"},
                  {OrderPolicy::fifo, "fifo"});

// The guarantees and limits of a project. GPUs are in thousandths.
struct Quota {
  std::int64_t guaranteed_milli = 0;   // it can always claim this much back
  std::int64_t limit_milli = -1;       // of all its running jobs; -1: none
  std::int64_t user_limit_milli = -1;  // of one user's running jobs in it
  std::int32_t user_running_max = -1;  // jobs of one user at once
  bool may_borrow = true;              // beyond the guarantee, while others leave capacity idle
  OrderPolicy policy = OrderPolicy::fair;
  std::vector<std::string>
      regions;  // data residency: its jobs, files and images stay in these; empty: anywhere
  std::vector<std::string> pools;

  bool operator==(const Quota&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("guaranteed_milli", s.guaranteed_milli);
    v("limit_milli", s.limit_milli);
    v("user_limit_milli", s.user_limit_milli);
    v("user_running_max", s.user_running_max);
    v("may_borrow", s.may_borrow);
    v("policy", s.policy);
    v("regions", s.regions);
    v("pools", s.pools);
  }
};

}  // namespace billow
