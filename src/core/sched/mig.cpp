#include "core/sched/mig.h"

#include <array>
#include <bit>
#include <charconv>

#include <fmt/format.h>

namespace billow::sched {

Result<MigProfile> parse_mig_profile(std::string_view text) {
  const auto bad = [&] {
    return fail(Code::invalid, fmt::format("\"{}\" is not a MIG profile", text),
                "write it as NVIDIA does, for example 1g.10gb");
  };
  MigProfile profile;
  std::string_view rest = text;
  if (rest.ends_with("+me")) {
    profile.media = true;
    rest.remove_suffix(3);
  }
  const char* end = rest.data() + rest.size();
  auto [g, g_error] = std::from_chars(rest.data(), end, profile.compute);
  if (g_error != std::errc{} || end - g < 2 || g[0] != 'g' || g[1] != '.')
    return bad();
  auto [b, b_error] = std::from_chars(g + 2, end, profile.gb);
  if (b_error != std::errc{} || std::string_view(b, static_cast<std::size_t>(end - b)) != "gb")
    return bad();
  if (profile.compute < 1 || profile.compute > 7 || profile.gb < 1)
    return bad();
  return profile;
}

std::optional<MigExtent> mig_extent(const MigProfile& profile,
                                    std::string_view gpu_type,
                                    std::int64_t memory_mib) {
  MigExtent extent{.compute = profile.compute};
  if (gpu_type.starts_with("A30"))
    extent.slices_all = extent.compute_all = 4;
  const double card_gb = static_cast<double>(memory_mib) / 1024.0;
  if (card_gb <= 0 || profile.compute > extent.compute_all)
    return std::nullopt;
  // Profile names are rounded: one slice of a 141 GB card is "18gb", two are "35gb". Take the
  // nearest run of slices.
  double nearest = 1e9;
  for (std::int32_t slices : {1, 2, 4, 8}) {
    if (slices > extent.slices_all)
      break;
    const double off = std::abs(card_gb * slices / extent.slices_all - profile.gb);
    if (off < nearest) {
      nearest = off;
      extent.slices = slices;
    }
  }
  if (nearest > card_gb / extent.slices_all * 0.45)
    return std::nullopt;
  // The profiles that NVIDIA offers. With eight slices: 1g of one or two, 2g of two, 3g and 4g of
  // four, 7g of all. With four slices: as many as the profile's compute number.
  const bool made = extent.slices_all == 4 ? extent.slices == profile.compute
                    : profile.compute == 1 ? extent.slices <= 2
                    : profile.compute == 2 ? extent.slices == 2
                    : profile.compute <= 4 ? extent.slices == 4
                                           : profile.compute == 7 && extent.slices == 8;
  if (!made)
    return std::nullopt;
  return extent;
}

namespace {

std::uint32_t starts_of(const MigExtent& e) {  // a bit per allowed first slice
  if (e.slices_all == 4)
    return e.slices == 1 ? 0b1111u : e.slices == 2 ? 0b0101u : 0b0001u;
  if (e.slices == 1)
    return 0b0111'1111u;
  if (e.slices == 2)
    return e.compute == 1 ? 0b0101'0101u : 0b0001'0101u;
  if (e.slices == 4)
    return e.compute == 3 ? 0b0001'0001u : 0b0000'0001u;
  return 1u;
}

bool lies_free(const MigExtent& e, std::int32_t start, std::uint32_t used) {
  const std::uint32_t mask = ((1u << e.slices) - 1u) << start;
  return start + e.slices <= e.slices_all && (used & mask) == 0;
}

// How many instances of each standard size would still fit on a card, each size alone.
int slices_left(std::uint32_t used, std::int32_t slices_all) {
  static constexpr std::array<MigExtent, 6> standard{
      {{1, 1, 8, 7}, {1, 2, 8, 7}, {2, 2, 8, 7}, {3, 4, 8, 7}, {4, 4, 8, 7}, {7, 8, 8, 7}}};
  int free = 0;
  for (MigExtent e : standard) {
    if (e.slices > slices_all)
      continue;
    e.slices_all = slices_all;
    for (std::int32_t s = 0; s < slices_all; ++s) {
      if ((starts_of(e) >> s & 1u) && lies_free(e, s, used))
        free += e.slices;
    }
  }
  return free;
}

}  // namespace

std::int32_t mig_start(const MigExtent& extent, std::uint32_t used, std::int32_t compute_used) {
  if (compute_used + extent.compute > extent.compute_all)
    return -1;
  std::int32_t best = -1;
  int best_left = -1;
  for (std::int32_t s = extent.slices_all - 1; s >= 0; --s) {
    if (!(starts_of(extent) >> s & 1u) || !lies_free(extent, s, used))
      continue;
    const std::uint32_t mask = ((1u << extent.slices) - 1u) << s;
    const int free = slices_left(used | mask, extent.slices_all);
    if (free > best_left) {
      best_left = free;
      best = s;
    }
  }
  return best;
}

MigOffer parse_mig_offer(const std::vector<std::string>& words) {
  MigOffer offer;
  for (const std::string& word : words) {
    const std::size_t at = word.find('@');
    if (at == std::string::npos) {
      offer.any = true;
      continue;
    }
    MigPlace place{word.substr(0, at), 0};
    const auto [end, error] =
        std::from_chars(word.data() + at + 1, word.data() + word.size(), place.start);
    if (error == std::errc() && end == word.data() + word.size() && place.start >= 0 &&
        place.start < 32)
      offer.places.push_back(std::move(place));
  }
  return offer;
}

std::int32_t mig_start(const GpuShape& card,
                       const std::string& profile,
                       const MigExtent& extent,
                       std::uint32_t used,
                       std::int32_t compute_used) {
  std::uint32_t taken = used;
  std::int32_t compute = compute_used;
  for (const MigPlace& place : card.mig_places) {
    const auto parsed = parse_mig_profile(place.profile);
    const auto covers = parsed ? mig_extent(*parsed, card.type, card.memory_mib) : std::nullopt;
    if (!covers)
      continue;
    const std::uint32_t mask = ((1u << covers->slices) - 1u) << place.start;
    if ((used & mask) != 0)
      continue;  // in use, and already counted
    if (place.profile == profile)
      return place.start;
    taken |= mask;  // another size, and not ours to destroy
    compute += covers->compute;
  }
  return card.mig_any ? mig_start(extent, taken, compute) : -1;
}

}  // namespace billow::sched
