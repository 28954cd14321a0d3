#include "pool/list_price.h"

#include <algorithm>
#include <cstdio>
#include <ctime>

#include "gpu/types.h"

namespace billow::pool {
namespace {

constexpr std::int64_t seconds_per_hour = 3600;

// The short name of a catalogue GPU: "H100-SXM" → "H100".
std::string short_type(const Catalogue& catalogue, const GpuSpec& spec) {
  for (const GpuTypeFacts& facts : gpu_types()) {
    const auto known = catalogue.gpu(facts.type);
    if (known && *known == &spec)
      return facts.type;
  }
  return spec.name;
}

std::optional<Rate> per_second(const std::optional<NanoUsd>& per_hour) {
  if (!per_hour)
    return std::nullopt;
  // Rounded up: a machine must not seem cheaper than it is.
  return Rate{(per_hour->value + seconds_per_hour - 1) / seconds_per_hour};
}

// "2026-08-21" → midnight UTC.
WallTime day(const std::string& date) {
  std::tm parts{};
  if (std::sscanf(date.c_str(), "%d-%d-%d", &parts.tm_year, &parts.tm_mon, &parts.tm_mday) != 3)
    return {};
  parts.tm_year -= 1900;
  parts.tm_mon -= 1;
  return WallTime{} + seconds(::timegm(&parts));
}

}  // namespace

std::optional<ListPrice> list_price(const Catalogue& catalogue,
                                    std::string_view provider,
                                    std::string_view instance,
                                    std::string_view region) {
  for (const Instance& listed : catalogue.instances()) {
    if (listed.provider != provider || listed.name != instance)
      continue;
    const GpuSpec& gpu = catalogue.gpus()[listed.gpu];
    ListPrice out{.gpu_type = short_type(catalogue, gpu),
                  .gpus = listed.gpus,
                  .cpus = listed.vcpus,
                  .memory_mib = listed.memory_gib * 1024,
                  .on_demand = {},
                  .spot = {},
                  .priced_at = {}};
    for (const Price& price : listed.prices) {
      if (std::ranges::find(price.regions, region) == price.regions.end())
        continue;
      out.on_demand = per_second(price.on_demand_h);
      out.spot = per_second(price.spot_h);
      out.priced_at = day(price.date);
    }
    return out;
  }
  return std::nullopt;
}

}  // namespace billow::pool
