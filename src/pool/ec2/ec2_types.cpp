// What an instance type has besides its GPUs: local disks and network adapters. Asked once for each
// type and region. Credentials that may not ask get machines without the extras.
#include <algorithm>

#include "base/log.h"
#include "base/text.h"
#include "pool/ec2/ec2_pool.h"

namespace billow::pool::ec2 {

TypeFacts read_type_facts(const net::XmlElement& type) {
  TypeFacts out;
  const auto number = [](const net::XmlElement* from, std::string_view name) {
    return from ? parse_int(from->child_text(name), 0, 1 << 30).value_or(0) : 0;
  };
  out.local_disk_gb = number(type.child("instanceStorageInfo"), "totalSizeInGB");
  const net::XmlElement* network = type.child("networkInfo");
  if (!network)
    return out;
  out.network_cards = std::max<std::int64_t>(1, number(network, "maximumNetworkCards"));
  if (network->child_text("efaSupported") == "true")
    out.efa_adapters =
        std::max<std::int64_t>(1, number(network->child("efaInfo"), "maximumEfaInterfaces"));
  return out;
}

TypeFacts Ec2Pool::type_facts(const std::string& region, const std::string& instance) {
  const std::lock_guard lock(mutex_);
  const std::string key = region + " " + instance;
  if (const auto known = types_.find(key); known != types_.end())
    return known->second;
  const auto described = wire_.ec2(region, "DescribeInstanceTypes", {{"InstanceType.1", instance}});
  if (!described) {
    log_warn("pool {}: the disks and network adapters of {} are not known: {}", settings_.name,
             instance, described.error().text());
    return {};
  }
  const net::XmlElement* types = described->child("instanceTypeSet");
  TypeFacts facts;
  if (types && !types->children.empty())
    facts = read_type_facts(types->children.front());
  types_[key] = facts;
  return facts;
}

// Card 0 carries the address. All other adapters are for traffic between the nodes of a gang only.
void add_adapters(Parameters& out, const Launch& launch) {
  const TypeFacts& has = launch.facts;
  if (launch.order->machine.nodes < 2 || launch.order->machine.offer->fabric != "efa")
    return;
  // Where there are fewer adapters than cards, the first card has none.
  if (has.efa_adapters == 0 || has.efa_adapters >= has.network_cards)
    out.emplace_back("NetworkInterface.1.InterfaceType", "efa");
  // EC2 gives a public address only to machines with one interface.
  if (launch.public_address)
    return;
  for (std::int64_t card = 1; card < has.network_cards; ++card) {
    const std::string prefix = "NetworkInterface." + std::to_string(card + 1) + ".";
    out.emplace_back(prefix + "NetworkCardIndex", std::to_string(card));
    out.emplace_back(prefix + "DeviceIndex", "1");
    out.emplace_back(prefix + "InterfaceType", "efa-only");
    out.emplace_back(prefix + "SubnetId", launch.subnet);
    out.emplace_back(prefix + "SecurityGroupId.1", launch.group);
    out.emplace_back(prefix + "DeleteOnTermination", "true");
  }
}

}  // namespace billow::pool::ec2
