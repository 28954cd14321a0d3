#include "core/control/renting/offers.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/limits.h"
#include "base/text.h"
#include "core/control/renting/pool_limits.h"
#include "core/ledger/catalogue.h"

namespace billow::control {
namespace {

bool named(const std::vector<std::string>& wanted, const std::string& name) {
  return wanted.empty() || std::find(wanted.begin(), wanted.end(), name) != wanted.end();
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
  return true;
}

// Larger than any machine, and small enough to be added up.
constexpr std::int64_t unknown_size = INT64_MAX / 1024;

// Of one card; more than the catalogue says, which is a little less than some drivers show.
std::int64_t memory_mib_of(const MachineOffer& offer) {
  static const Catalogue catalogue = Catalogue::embedded();
  const auto gpu = catalogue.gpu(offer.gpu_type);
  return gpu && (*gpu)->memory_mib ? *(*gpu)->memory_mib * 11 / 10 : unknown_size;
}

void set_label(sched::LabelMap& labels, const char* key, const std::string& value) {
  if (!value.empty())
    labels[key] = value;
}

// A pool without offers may label its nodes as it likes: until one has joined, an unknown place
// may be the right one.
void assume_place(sched::NodeShape& node, const PlaceWish& wish) {
  const auto assume = [](std::string& have, const std::vector<std::string>& wanted) {
    if (have.empty() && !wanted.empty())
      have = wanted.front();
  };
  assume(node.place.region, wish.regions);
  assume(node.place.zone, wish.zones);
  assume(node.place.fabric, wish.fabrics);
  if (node.place.placement_group.empty())
    node.place.placement_group = wish.placement_group;
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

const LearnedShape* learned_of(const Source& source) {
  const std::string instance = source.offer ? source.offer->instance : "";
  for (const LearnedShape& learned : source.pool->learned)
    if (learned.instance == instance)
      return &learned;
  return nullptr;
}

sched::NodeShape expected_node(const Source& source, const JobSpec& spec) {
  const LearnedShape* learned = learned_of(source);
  const auto& can = source.pool->capabilities;
  const std::int64_t disk_mib_max = can ? can->disk_mib_max : 0;
  sched::NodeShape node;
  node.pool = source.pool->name;
  node.labels = learned ? learned->node.labels : source.pool->labels;
  if (source.offer) {
    set_label(node.labels, "region", source.offer->region);
    set_label(node.labels, "zone", source.offer->zone);
    set_label(node.labels, "instance", source.offer->instance);
    set_label(node.labels, "market", source.offer->spot ? "spot" : "on-demand");
    set_label(node.labels, "fabric", source.offer->fabric);
  }
  node.place = place_of(node.labels);
  const sched::GpuShape new_gpu{
      .type = source.gpu_type(),
      .memory_mib = source.offer ? memory_mib_of(*source.offer) : unknown_size};
  if (learned) {
    for (const NodeGpu& gpu : learned->node.gpus)
      node.gpus.push_back(
          {.type = gpu.type, .memory_mib = gpu.mem_mib, .nvlink_domain = gpu.nvlink_domain});
    // A machine that lacked some of its GPUs had a fault, which the next one has not.
    while (node.gpus.size() < static_cast<std::size_t>(source.gpus()))
      node.gpus.push_back(node.gpus.empty() ? new_gpu : node.gpus.back());
    node.cpu_milli = learned->node.cpu_milli;
    node.mem_mib = learned->node.mem_mib;
    node.disk_mib = disk_mib_max > 0 ? disk_mib_max : learned->node.disk_mib;
    return node;
  }
  node.gpus.assign(static_cast<std::size_t>(source.gpus()), new_gpu);
  const std::int64_t cpus = source.offer ? source.offer->cpus : 0;
  const std::int64_t memory = source.offer ? source.offer->memory_mib : 0;
  node.cpu_milli = cpus > 0 ? cpus * 1000 : unknown_size;
  node.mem_mib = memory > 0 ? memory : unknown_size;
  node.disk_mib = disk_mib_max > 0 ? disk_mib_max : unknown_size;
  if (!source.offer)
    assume_place(node, spec.place);
  return node;
}

const UnusedMachine* unused_for(const Source& source, JobId kind) {
  const std::string instance = source.offer ? source.offer->instance : "";
  for (const UnusedMachine& unused : source.pool->unused)
    if (unused.joined && unused.job == kind && unused.instance == instance)
      return &unused;
  return nullptr;
}

bool time_is_short(const Job& job, WallTime now, Duration expected) {
  const auto label = job.spec->labels.find(label_by);
  if (label == job.spec->labels.end())
    return false;
  const WallTime by{parse_int(label->second, 0, std::int64_t{1} << 33).value_or(0) * 1'000'000'000};
  if (!by)
    return false;
  // A reclaimed machine costs its work and the time to get another.
  const Duration needed = expected.ns > 0 ? expected : Duration{(by - job.submitted_at).ns / 2};
  return now + needed + needed / 4 + minutes(10) > by;
}

bool outlasts(const JobSpec& spec, const Pool& pool) {
  return pool.time.ns > 0 && spec.time_limit + limits::pool_end_margin > pool.time &&
         spec.checkpoint_every.ns == 0 && spec.time_limit.ns > 0;
}

std::vector<Job> members_alone(const Job& job) {
  std::vector<Job> members;
  for (JobSpec& part : parts_of(*job.spec)) {
    Job& member = members.emplace_back(job);
    part.nodes = 1;
    member.spec = std::make_shared<const JobSpec>(std::move(part));
    member.array_index = members.size();
  }
  return members;
}

bool fits(const State& state, const Job& job, const Source& source) {
  const JobSpec& spec = *job.spec;
  if (!spec.roles.empty()) {
    const std::vector<Job> members = members_alone(job);
    return std::ranges::any_of(members, [&](const Job& m) { return fits(state, m, source); });
  }
  if (!spec.resources.mig_profile.empty() || spec.nodes > source.pool->machines_max)
    return false;
  if (source.offer && source.offer->spot && !spec.spot)
    return false;
  if (outlasts(spec, *source.pool))
    return false;
  if (!size_fits(spec.resources, source) || !price_fits(spec, source))
    return false;
  return sched::could_run(state.index, request_of(state, job), {expected_node(source, spec)})
      .front();
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

std::optional<Source> cheapest_at_any_price(const State& state, const Job& job, const Pool& pool) {
  JobSpec any = *job.spec;
  any.place.max_price = {};
  Job at_any_price = job;
  at_any_price.spec = std::make_shared<const JobSpec>(std::move(any));
  std::optional<Source> best;
  for (const Source& source : sources_of(pool))
    if ((!best ||
         price_per_useful_gpu(source, source.gpus()) < price_per_useful_gpu(*best, best->gpus())) &&
        fits(state, at_any_price, source))
      best = source;
  return best;
}

std::string offer_text(const MachineOffer& offer) {
  std::string price = "price unknown";
  if (offer.price.nano_usd_per_s > 0)
    price = fmt::format("${:.2f}/h", static_cast<double>(offer.price.nano_usd_per_s) * 3600 / 1e9);
  return fmt::format("{} in {} ({}, {})", offer.instance,
                     offer.zone.empty() ? offer.region : offer.zone,
                     !offer.reservation.empty() ? "reserved"
                     : offer.spot               ? "spot"
                                                : "on demand",
                     price);
}

std::uint32_t orders_left(const Pool& pool, WallTime now) {
  const std::uint32_t most = pool.per_minute_max > 0
                                 ? pool.per_minute_max
                                 : std::max(limits::pool_per_minute_min, 2 * pool.machines_max);
  const auto recent =
      static_cast<std::uint32_t>(std::count_if(pool.recent_orders.begin(), pool.recent_orders.end(),
                                               [&](WallTime at) { return at + minutes(1) > now; }));
  return most - std::min(most, recent);
}

std::int64_t wanted_milli(const Resources& r, std::int32_t machine_gpus) {
  if (r.whole_node)
    return std::int64_t{1000} * std::max(1, machine_gpus);
  if (r.gpus == 0)
    return 0;
  if (r.gpus == 1 && !r.share.whole())
    return r.share.milli > 0 ? r.share.milli : 1000;
  return std::int64_t{1000} * r.gpus;
}

std::int32_t gpus_on_a_node(const Resources& r, std::int32_t machine_gpus) {
  if (r.takes_node())
    return machine_gpus;
  const std::int64_t wanted = (wanted_milli(r, machine_gpus) + 999) / 1000;
  return static_cast<std::int32_t>(std::min<std::int64_t>(wanted, machine_gpus));
}

std::int64_t brought_milli(const Source& source, const JobSpec& spec) {
  const PoolCapabilities can = source.pool->capabilities.value_or(PoolCapabilities{});
  const bool sized =
      can.sizes_to_demand && !source.offer && (spec.nodes == 1 || can.gangs_share_nodes);
  const std::int32_t gpus = sized ? gpus_on_a_node(spec.resources, source.gpus()) : source.gpus();
  return std::int64_t{1000} * gpus * spec.nodes;
}

}  // namespace billow::control
