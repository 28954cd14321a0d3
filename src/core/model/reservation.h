// GPUs promised to a project for a period, on nodes chosen when the promise was made.
//
// A reservation is paid whether it is used or not, at the reserved price of the day it was made:
// jobs inside it pay that rate for what they hold while it lasts, and the unused rest is charged to
// the reservation itself when it ends. The two always add up to the whole.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/money.h"
#include "core/model/job.h"

namespace billow {

// The part of one node that it holds.
struct ReservedPlace {
  NodeId node;
  std::vector<GpuGrant> gpus;
  std::int64_t cpu_milli = 0;
  std::int64_t mem_mib = 0;
  bool operator==(const ReservedPlace&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("node", s.node);
    v("gpus", s.gpus);
    v("cpu_milli", s.cpu_milli);
    v("mem_mib", s.mem_mib);
  }
};

struct Reservation {
  ReservationId id;
  std::string name;
  ProjectId project;
  UserId user;  // who made it
  WallTime from, until;
  Resources resources;  // per node
  std::uint32_t nodes = 1;
  PlaceWish place;
  std::vector<ReservedPlace> places;
  Rate rate;                       // of one whole GPU
  NanoUsd used;                    // paid by jobs inside it whose leases have closed
  std::int64_t used_milli_ms = 0;  // and their use: thousandths of a GPU times milliseconds
  WallTime made_at;

  std::int64_t gpu_milli() const {
    std::int64_t milli = 0;
    for (const ReservedPlace& p : places)
      for (const GpuGrant& g : p.gpus)
        milli += g.share.milli;
    return milli;
  }
  bool operator==(const Reservation&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("id", s.id);
    v("name", s.name);
    v("project", s.project);
    v("user", s.user);
    v("from_ns", s.from);
    v("until_ns", s.until);
    v("resources", s.resources);
    v("nodes", s.nodes);
    v("place", s.place);
    v("places", s.places);
    v("rate", s.rate);
    v("used", s.used);
    v("made_at_ns", s.made_at);
    v("used_milli_ms", s.used_milli_ms);
  }
};

}  // namespace billow
