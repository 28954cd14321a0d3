#include "core/control/decide/offers.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/limits.h"
#include "base/text.h"

namespace billow::control {
namespace {

bool named(const std::vector<std::string>& wanted, const std::string& name) {
  return wanted.empty() || std::find(wanted.begin(), wanted.end(), name) != wanted.end();
}

// The label that nodes of this source will have; null: it is not known before they join.
const std::string* label_of(const Source& source, const std::string& key) {
  static const std::string spot = "spot", on_demand = "on-demand";
  if (source.offer) {
    if (key == "region" && !source.offer->region.empty())
      return &source.offer->region;
    if (key == "zone" && !source.offer->zone.empty())
      return &source.offer->zone;
    if (key == "instance")
      return &source.offer->instance;
    if (key == "market")
      return source.offer->spot ? &spot : &on_demand;
  }
  const auto found = source.pool->labels.find(key);
  return found == source.pool->labels.end() ? nullptr : &found->second;
}

bool place_fits(const JobSpec& spec, const Source& source) {
  for (const auto& [key, value] : spec.node_labels) {
    const std::string* has = label_of(source, key);
    if (!has || *has != value)
      return false;
  }
  // A pool without offers may label its nodes as it likes: an unknown label may be the right one.
  const auto in = [&](const std::vector<std::string>& wanted, const char* key) {
    const std::string* has = label_of(source, key);
    return has ? named(wanted, *has) : wanted.empty() || !source.offer;
  };
  return named(spec.place.pools, source.pool->name) && in(spec.place.regions, "region") &&
         in(spec.place.zones, "zone");
}

bool price_fits(const JobSpec& spec, const Source& source) {
  if (spec.place.max_price.value == 0)
    return true;
  const std::int64_t rate = source.price().nano_usd_per_s;
  if (rate <= 0)
    return false;  // an unknown price may be any price
  return static_cast<__int128>(rate) * 3600 <=
         static_cast<__int128>(spec.place.max_price.value) * std::max(1, source.gpus());
}

bool size_fits(const Resources& r, const Source& source) {
  if (r.gpus > source.gpus() || (source.gpus() > 0 && source.gpu_type().empty()))
    return false;
  if (r.gpus > 0 && !named(r.gpu_types, source.gpu_type()))
    return false;
  if (!source.offer)
    return true;
  return (source.offer->cpus == 0 || r.cpu_milli <= std::int64_t{1000} * source.offer->cpus) &&
         (source.offer->memory_mib == 0 || r.mem_mib <= source.offer->memory_mib);
}

bool covers(const OfferRefusal& refusal, const MachineOffer& offer) {
  const MachineOffer& refused = refusal.offer;
  if (refused.spot != offer.spot || refused.region != offer.region ||
      refused.reservation != offer.reservation)
    return false;
  switch (refusal.kind) {
    case RefusalKind::quota:
      return refused.gpu_type == offer.gpu_type;
    case RefusalKind::capacity:
    case RefusalKind::not_offered:
    case RefusalKind::no_answer:
    case RefusalKind::settings:
      return refused.instance == offer.instance && refused.zone == offer.zone;
  }
  return true;
}

}  // namespace

Source source_of(const Machine& machine, const Pool& pool) {
  return {.pool = &pool, .offer = machine.offer ? &*machine.offer : nullptr};
}

std::vector<Source> sources_of(const Pool& pool) {
  if (!pool.capabilities || !pool.capabilities->from_offers)
    return {{.pool = &pool}};
  std::vector<Source> out;
  out.reserve(pool.offers.size());
  for (const MachineOffer& offer : pool.offers)
    out.push_back({.pool = &pool, .offer = &offer});
  return out;
}

bool fits(const JobSpec& spec, const Source& source) {
  if (!spec.resources.mig_profile.empty() || spec.nodes > source.pool->machines_max)
    return false;
  if (source.offer && source.offer->spot && !spec.spot)
    return false;
  return size_fits(spec.resources, source) && place_fits(spec, source) && price_fits(spec, source);
}

bool same_place(const Source& a, const Source& b) {
  if (!a.offer || !b.offer)
    return !a.offer && !b.offer;
  return a.pool == b.pool && a.offer->region == b.offer->region && a.offer->zone == b.offer->zone;
}

const OfferRefusal* refusal_of(const Pool& pool, const MachineOffer& offer, WallTime now) {
  for (const OfferRefusal& refusal : pool.refusals)
    if (refusal.until > now && covers(refusal, offer))
      return &refusal;
  return nullptr;
}

Duration pause_after(RefusalKind kind) {
  switch (kind) {
    case RefusalKind::no_answer:
    case RefusalKind::capacity:
      return limits::offer_capacity_pause;
    case RefusalKind::quota:
      return limits::offer_quota_pause;
    case RefusalKind::not_offered:
      return limits::offer_missing_pause;
    case RefusalKind::settings:
      return limits::pool_settings_pause;
  }
  return limits::offer_capacity_pause;
}

std::int64_t price_per_useful_gpu(const Source& source, std::int64_t useful_gpus) {
  if (source.offer && !source.offer->reservation.empty())
    return 0;
  const std::int64_t rate = source.price().nano_usd_per_s;
  if (rate <= 0)
    return INT64_MAX;
  const std::int64_t gpus = std::clamp<std::int64_t>(useful_gpus, 1, std::max(1, source.gpus()));
  // A tenth of spot time is lost to reclaims and the restarts after them.
  constexpr std::int64_t on_demand_percent = 100, spot_percent = 110;
  const bool spot = source.offer ? source.offer->spot : source.pool->spot;
  return static_cast<std::int64_t>(static_cast<__int128>(rate) *
                                   (spot ? spot_percent : on_demand_percent) / gpus);
}

std::string offer_text(const MachineOffer& offer) {
  std::string price = "price unknown";
  if (offer.price.nano_usd_per_s > 0)
    price = fmt::format("${:.2f}/h", static_cast<double>(offer.price.nano_usd_per_s) * 3600 / 1e9);
  return fmt::format("{} in {} ({}, {})", offer.instance,
                     offer.zone.empty() ? offer.region : offer.zone,
                     offer.spot ? "spot" : "on demand", price);
}

}  // namespace billow::control
