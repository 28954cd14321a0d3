// MIG instances: which part of a card a profile such as "3g.40gb" takes, and where on the card it
// may start.
//
// A card has eight memory slices and seven compute slices (an A30 four and four). An instance
// covers a run of memory slices that may begin only at certain places, so two half-empty cards are
// not one empty card. The start is chosen so that the most other instances still fit beside it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <vector>

#include "base/result.h"
#include "core/sched/types.h"

namespace billow::sched {

struct MigProfile {
  std::int32_t compute = 0;  // the g of 3g.40gb
  std::int32_t gb = 0;
  bool media = false;  // "+me": at most one on a card
};
Result<MigProfile> parse_mig_profile(std::string_view text);

// A profile on one kind of card.
struct MigExtent {
  std::int32_t compute = 0;
  std::int32_t slices = 0;      // of memory
  std::int32_t slices_all = 8;  // of the card
  std::int32_t compute_all = 7;
};
// Empty if the card has no such instance (too much memory, or a size that is not a run of slices).
std::optional<MigExtent> mig_extent(const MigProfile& profile,
                                    std::string_view gpu_type,
                                    std::int64_t memory_mib);

// A node's report about a card's instances: "1g.10gb@6" exists, "any" allows new ones. Older nodes
// omit the start and mean both.
struct MigOffer {
  std::vector<MigPlace> places;
  bool any = false;
};
MigOffer parse_mig_offer(const std::vector<std::string>& words);
// The start of a free existing instance, else the best start for a new one if the card allows it,
// else -1.
std::int32_t mig_start(const GpuShape& card,
                       const std::string& profile,
                       const MigExtent& extent,
                       std::uint32_t used,
                       std::int32_t compute_used);

// The best free start on a card whose taken slices are `used` (a bit each), or -1.
std::int32_t mig_start(const MigExtent& extent, std::uint32_t used, std::int32_t compute_used);

}  // namespace billow::sched
