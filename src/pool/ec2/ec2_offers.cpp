// What EC2 rents in the pool's regions: the catalogue's prices, the zones that have each instance
// type and a subnet, present spot prices, and capacity that is paid for already.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <set>

#include "base/log.h"
#include "base/text.h"
#include "pool/catalogue_offers.h"
#include "pool/ec2/ec2_pool.h"

namespace billow::pool::ec2 {
namespace {

std::string utc(WallTime time) {
  const time_t seconds = static_cast<time_t>(time.ns / 1'000'000'000);
  struct tm parts {};
  ::gmtime_r(&seconds, &parts);
  char text[32];
  ::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

// Instance types with an Elastic Fabric Adapter for GPUs.
bool has_efa(std::string_view instance) {
  for (const std::string_view family : {"p4d.", "p4de.", "p5.48", "p5e.", "p5en.", "p6-"})
    if (instance.starts_with(family))
      return true;
  return false;
}

template <class Fn>
void each_item(const net::XmlElement& page, std::string_view set, Fn fn) {
  if (const net::XmlElement* items = page.child(set))
    for (const net::XmlElement& item : items->children)
      fn(item);
}

}  // namespace

Answer<std::map<std::string, std::vector<std::string>>> Ec2Pool::zones_of(
    const std::string& region, const std::vector<std::string>& instances) {
  std::map<std::string, std::vector<std::string>> out;
  Parameters look{{"LocationType", "availability-zone"}, {"MaxResults", "1000"}};
  add_filter(look, "instance-type", instances);
  const auto listed =
      wire_.pages(region, "DescribeInstanceTypeOfferings", look, [&](const net::XmlElement& page) {
        each_item(page, "instanceTypeOfferingSet", [&](const net::XmlElement& item) {
          out[std::string(item.child_text("instanceType"))].emplace_back(
              item.child_text("location"));
        });
      });
  if (!listed)
    return std::unexpected(listed.error());
  return out;
}

void Ec2Pool::set_spot_prices(const std::string& region,
                              const std::vector<std::string>& instances,
                              std::vector<MachineOffer>& offers) {
  const WallTime now = system_clock().wall();
  Parameters look{
      {"ProductDescription.1", "Linux/UNIX"}, {"StartTime", utc(now)}, {"MaxResults", "1000"}};
  for (std::size_t i = 0; i < instances.size(); ++i)
    look.emplace_back(fmt::format("InstanceType.{}", i + 1), instances[i]);
  std::map<std::pair<std::string, std::string>, NanoUsd> prices;
  const auto listed =
      wire_.pages(region, "DescribeSpotPriceHistory", look, [&](const net::XmlElement& page) {
        each_item(page, "spotPriceHistorySet", [&](const net::XmlElement& item) {
          if (const auto price = parse_usd(item.child_text("spotPrice")); price && price->value > 0)
            prices.try_emplace({std::string(item.child_text("instanceType")),
                                std::string(item.child_text("availabilityZone"))},
                               *price);
        });
      });
  if (!listed)
    return log_warn("pool {}: spot prices of {} are those of the catalogue: {}", settings_.name,
                    region, listed.error().text());
  for (MachineOffer& offer : offers) {
    const auto price = prices.find({offer.instance, offer.zone});
    if (!offer.spot || offer.region != region || price == prices.end())
      continue;
    offer.price_h = price->second;
    offer.price = {price->second.value / 3600};
    offer.priced_at = now;
  }
}

void Ec2Pool::add_reservations(const std::string& region, std::vector<MachineOffer>& offers) {
  Parameters look;
  add_filter(look, "state", {"active"});
  std::vector<MachineOffer> paid;
  const auto listed =
      wire_.pages(region, "DescribeCapacityReservations", look, [&](const net::XmlElement& page) {
        each_item(page, "capacityReservationSet", [&](const net::XmlElement& item) {
          if (parse_int(item.child_text("availableInstanceCount"), 0, 1 << 20).value_or(0) == 0)
            return;
          const auto like = std::ranges::find_if(offers, [&](const MachineOffer& offer) {
            return !offer.spot && offer.instance == item.child_text("instanceType") &&
                   offer.zone == item.child_text("availabilityZone");
          });
          if (like == offers.end())
            return;
          MachineOffer offer = *like;
          const bool block = item.child_text("reservationType") == "capacity-block";
          offer.reservation =
              (block ? "block:" : "") + std::string(item.child_text("capacityReservationId"));
          paid.push_back(std::move(offer));
        });
      });
  if (!listed)
    log_warn("pool {}: capacity reservations of {} are not known: {}", settings_.name, region,
             listed.error().text());
  offers.insert(offers.end(), paid.begin(), paid.end());
}

Result<std::vector<MachineOffer>> Ec2Pool::offers() {
  const std::vector<std::string> wanted_types =
      option("gpu_types").empty() ? std::vector<std::string>{} : split(option("gpu_types"), ',');
  std::vector<MachineOffer> out;
  for (const std::string& region : regions()) {
    std::vector<MachineOffer> listed =
        catalogue_offers({.provider = "aws", .regions = {region}, .spot = settings_.spot});
    std::erase_if(listed, [&](const MachineOffer& offer) {
      return !wanted_types.empty() && std::find(wanted_types.begin(), wanted_types.end(),
                                                offer.gpu_type) == wanted_types.end();
    });
    if (listed.empty())
      continue;
    std::set<std::string> names;
    for (const MachineOffer& offer : listed)
      names.insert(offer.instance);
    const std::vector<std::string> instances(names.begin(), names.end());
    const auto where = place(region);
    if (!where)
      return pass(error_of(where.error()), region);
    const auto zones = zones_of(region, instances);
    if (!zones)
      return pass(error_of(zones.error()), region);
    std::vector<MachineOffer> here;
    for (const MachineOffer& offer : listed) {
      const auto found = zones->find(offer.instance);
      if (found == zones->end())
        continue;
      for (const std::string& zone : found->second)
        if (where->subnets.contains(zone)) {
          here.push_back(offer);
          here.back().zone = zone;
          here.back().fabric = has_efa(offer.instance) ? "efa" : "";
        }
    }
    if (settings_.spot)
      set_spot_prices(region, instances, here);
    add_reservations(region, here);
    out.insert(out.end(), here.begin(), here.end());
  }
  if (out.empty())
    return fail(Code::not_found,
                fmt::format("no instance with a GPU is known in {}", option("regions")),
                "check the names of the regions and the GPU types");
  return out;
}

}  // namespace billow::pool::ec2
