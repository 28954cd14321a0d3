#include "pool/ec2/ec2_pool.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>

#include "base/crypto.h"
#include "base/text.h"
#include "pool/boot.h"
#include "pool/kinds.h"

namespace billow::pool {
namespace ec2 {
namespace {

// Images with a driver, Docker and EFA, by AWS; processors of ARM have another.
constexpr std::string_view gpu_image =
    "/aws/service/deeplearning/ami/{}/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id";
constexpr std::string_view plain_image =
    "/aws/service/canonical/ubuntu/server/24.04/stable/current/{}/hvm/ebs-gp3/ami-id";

// Which of several instances of one request this is, by the instance metadata.
constexpr std::string_view own_index =
    "echo ${BILLOW_BOOT_RANK:-$(curl -s -H \"X-aws-ec2-metadata-token: $(curl -s -X PUT -H "
    "'X-aws-ec2-metadata-token-ttl-seconds: 60' http://169.254.169.254/latest/api/token)\" "
    "http://169.254.169.254/latest/meta-data/ami-launch-index)}";

// Where a volume shows up: by its number on current machines, by the name it was attached with on
// older ones.
constexpr std::string_view cache_disks =
    "/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_vol* /dev/xvdf /dev/sdf";

bool is_arm(std::string_view instance) {
  for (const std::string_view family : {"g5g.", "p6e-"})
    if (instance.starts_with(family))
      return true;
  return false;
}

// "2026-11-16T12:30:40.000Z", or "User initiated (2026-11-16 12:30:45 GMT)"; zero: no time.
WallTime time_in(std::string_view text, const char* format) {
  const auto digits = text.find_first_of("0123456789");
  if (digits == std::string_view::npos)
    return {};
  struct tm parts {};
  if (!::strptime(std::string(text.substr(digits)).c_str(), format, &parts))
    return {};
  return WallTime{} + seconds(::timegm(&parts));
}

void add_tags(Parameters& out, const Launch& launch) {
  std::vector<std::string> kinds = {"instance", "volume", "network-interface"};
  if (launch.order->machine.offer->spot)
    kinds.emplace_back("spot-instances-request");
  const std::vector<std::pair<std::string, std::string>> tags = {
      {"Name", "billow-" + launch.order->machine.name},
      {"billow:installation", launch.installation},
      {"billow:pool", launch.pool},
      {"billow:machine", launch.order->machine.name}};
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    const std::string prefix = fmt::format("TagSpecification.{}.", k + 1);
    out.emplace_back(prefix + "ResourceType", kinds[k]);
    for (std::size_t t = 0; t < tags.size(); ++t) {
      out.emplace_back(fmt::format("{}Tag.{}.Key", prefix, t + 1), tags[t].first);
      out.emplace_back(fmt::format("{}Tag.{}.Value", prefix, t + 1), tags[t].second);
    }
  }
}

// "block:cr-1" is a capacity block, "cr-1" a reservation.
void add_market(Parameters& out, const MachineOffer& offer) {
  const bool block = offer.reservation.starts_with("block:");
  if (offer.spot) {
    out.emplace_back("InstanceMarketOptions.MarketType", "spot");
    out.emplace_back("InstanceMarketOptions.SpotOptions.SpotInstanceType", "one-time");
    out.emplace_back("InstanceMarketOptions.SpotOptions.InstanceInterruptionBehavior", "terminate");
  } else if (block) {
    out.emplace_back("InstanceMarketOptions.MarketType", "capacity-block");
  }
  if (!offer.reservation.empty())
    out.emplace_back(
        "CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId",
        block ? offer.reservation.substr(6) : offer.reservation);
}

Refusal ec2_refusal(const ApiError& error) {
  return {kind_of(error), error.text()};
}

}  // namespace

WallTime ec2_time(std::string_view text) {
  return time_in(text, "%Y-%m-%dT%H:%M:%S");
}

std::string client_token(const std::string& installation,
                         const std::string& machine,
                         const std::string& subnet) {
  return sha256_hex(installation + "/" + machine + "/" + subnet);
}

Parameters run_instances(const Launch& launch) {
  const Machine& machine = launch.order->machine;
  const MachineOffer& offer = *machine.offer;
  const std::string count = std::to_string(machine.nodes);
  Parameters out{
      {"MinCount", count},
      {"MaxCount", count},
      {"ClientToken", client_token(launch.installation, machine.name, launch.subnet)},
      {"ImageId", launch.image.id},
      {"InstanceType", offer.instance},
      {"UserData", base64(launch.user_data)},
      // A machine that powers itself off, because its head is gone, costs nothing from then on.
      {"InstanceInitiatedShutdownBehavior", "terminate"},
      {"Placement.AvailabilityZone", offer.zone},
      {"MetadataOptions.HttpTokens", "required"},
      {"MetadataOptions.HttpEndpoint", "enabled"},
      {"MetadataOptions.HttpPutResponseHopLimit", "1"},
      {"NetworkInterface.1.DeviceIndex", "0"},
      {"NetworkInterface.1.SubnetId", launch.subnet},
      {"NetworkInterface.1.SecurityGroupId.1", launch.group},
      {"NetworkInterface.1.AssociatePublicIpAddress", launch.public_address ? "true" : "false"},
      {"NetworkInterface.1.DeleteOnTermination", "true"},
      {"BlockDeviceMapping.1.DeviceName", launch.image.root_device},
      {"BlockDeviceMapping.1.Ebs.VolumeSize", std::to_string(launch.volume_gib)},
      {"BlockDeviceMapping.1.Ebs.VolumeType", "gp3"},
      {"BlockDeviceMapping.1.Ebs.DeleteOnTermination", "true"}};
  if (!launch.instance_profile.empty())
    out.emplace_back("IamInstanceProfile.Name", launch.instance_profile);
  if (!launch.placement_group.empty())
    out.emplace_back("Placement.GroupName", launch.placement_group);
  add_adapters(out, launch);
  add_market(out, offer);
  add_tags(out, launch);
  return out;
}

void read_instances(const net::XmlElement& page, const std::string& region, SeenMachines& out) {
  const net::XmlElement* reservations = page.child("reservationSet");
  if (!reservations)
    return;
  for (const net::XmlElement& reservation : reservations->children) {
    const net::XmlElement* instances = reservation.child("instancesSet");
    if (!instances)
      continue;
    for (const net::XmlElement& instance : instances->children) {
      std::string machine;
      if (const net::XmlElement* tags = instance.child("tagSet"))
        for (const net::XmlElement& tag : tags->children)
          if (tag.child_text("key") == "billow:machine")
            machine = tag.child_text("value");
      if (machine.empty())
        continue;
      const net::XmlElement* state = instance.child("instanceState");
      const net::XmlElement* reason = instance.child("stateReason");
      out[machine].push_back({std::string(instance.child_text("instanceId")),
                              std::string(state ? state->child_text("name") : ""),
                              std::string(reason ? reason->child_text("code") : ""), region,
                              ec2_time(instance.child_text("launchTime")),
                              time_in(instance.child_text("reason"), "%Y-%m-%d %H:%M:%S")});
    }
  }
}

MachineSighting sighting_of(const std::string& machine,
                            const std::vector<SeenInstance>& instances) {
  MachineSighting out;
  out.name = machine;
  std::vector<std::string> ids, ended;
  for (const SeenInstance& one : instances) {
    if (one.launched && (!out.billed_from || one.launched < out.billed_from))
      out.billed_from = one.launched;
    out.billed_to = std::max(out.billed_to, one.ended);
    if (one.state == "terminated") {
      ended.push_back(one.reason.empty() ? "terminated" : one.reason);
      continue;
    }
    ids.push_back(one.id);
    out.note = one.state;
  }
  out.external =
      instances.front().region + "/" + (ids.empty() ? instances.front().id : join(ids, ","));
  if (!ids.empty()) {
    out.billed_to = {};
    return out;
  }
  out.ended = true;
  out.note = ended.front();
  // What somebody ended on purpose is no refusal of the provider.
  if (out.note.starts_with("Server.") || out.note.starts_with("Client.VolumeLimit") ||
      out.note.starts_with("Client.InternalError") || out.note.starts_with("Client.InvalidSnap"))
    out.failed = kind_of_end(out.note);
  return out;
}

Ec2Pool::Ec2Pool(billow::Pool settings, pool::Options options, Variables variable)
    : settings_(std::move(settings)),
      options_(std::move(options)),
      wire_({.endpoint = option("endpoint"),
             .profile = option("profile"),
             .variable = std::move(variable)}) {}

std::string Ec2Pool::option(const char* name) const {
  const auto found = settings_.options.find(name);
  return found == settings_.options.end() ? "" : found->second;
}

std::vector<std::string> Ec2Pool::regions() {
  std::vector<std::string> out;
  for (const std::string& region : split(option("regions"), ','))
    if (!trim(region).empty())
      out.emplace_back(trim(region));
  return out;
}

Answer<std::string> Ec2Pool::security_group(const std::string& region, const std::string& vpc) {
  if (std::string given = option("security_group"); !given.empty())
    return given;
  const auto id = find_or_make_group(region, vpc);
  if (!id)
    return id;
  // The nodes of a gang reach each other, and nobody else reaches them. An existing group may lack
  // this rule: the head was stopped in between, or the answer to its creation was lost.
  const auto inside = wire_.ec2(region, "AuthorizeSecurityGroupIngress",
                                {{"GroupId", *id},
                                 {"IpPermissions.1.IpProtocol", "-1"},
                                 {"IpPermissions.1.Groups.1.GroupId", *id}});
  if (!inside && inside.error().code != "InvalidPermission.Duplicate")
    return std::unexpected(inside.error());
  return id;
}

Answer<std::string> Ec2Pool::find_or_make_group(const std::string& region, const std::string& vpc) {
  const std::string name = "billow-" + options_.installation;
  Parameters look;
  add_filter(look, "group-name", {name});
  add_filter(look, "vpc-id", {vpc});
  const auto found = wire_.ec2(region, "DescribeSecurityGroups", look);
  if (!found)
    return std::unexpected(found.error());
  const net::XmlElement* groups = found->child("securityGroupInfo");
  if (groups && !groups->children.empty())
    return std::string(groups->children.front().child_text("groupId"));
  const auto made = wire_.ec2(region, "CreateSecurityGroup",
                              {{"GroupName", name},
                               {"GroupDescription", "Billow nodes: no connections from outside"},
                               {"VpcId", vpc},
                               {"TagSpecification.1.ResourceType", "security-group"},
                               {"TagSpecification.1.Tag.1.Key", "billow:installation"},
                               {"TagSpecification.1.Tag.1.Value", options_.installation}});
  if (!made)
    return std::unexpected(made.error());
  return std::string(made->child_text("groupId"));
}

Answer<Place> Ec2Pool::find_place(const std::string& region) {
  Place out;
  Parameters look;
  const std::string given = option("subnets");
  if (given.empty())
    add_filter(look, "default-for-az", {"true"});
  else
    add_filter(look, "subnet-id", split(given, ','));
  const auto read = [&](const net::XmlElement& page) {
    const net::XmlElement* subnets = page.child("subnetSet");
    if (!subnets)
      return;
    for (const net::XmlElement& subnet : subnets->children) {
      out.subnets.emplace(subnet.child_text("availabilityZone"), subnet.child_text("subnetId"));
      out.vpc = subnet.child_text("vpcId");
    }
  };
  if (const auto listed = wire_.pages(region, "DescribeSubnets", look, read); !listed)
    return std::unexpected(listed.error());
  if (out.subnets.empty())
    return std::unexpected(ApiError{
        400, "NoSubnet",
        fmt::format("region {} has no default subnets; name some: --option subnets=…", region)});
  auto group = security_group(region, out.vpc);
  if (!group)
    return std::unexpected(group.error());
  out.group = std::move(*group);
  return out;
}

Answer<Place> Ec2Pool::place(const std::string& region) {
  const std::lock_guard lock(mutex_);
  if (const auto known = places_.find(region); known != places_.end())
    return known->second;
  auto found = find_place(region);
  if (found)
    places_[region] = *found;
  return found;
}

Answer<Image> Ec2Pool::image(const std::string& region, const std::string& instance) {
  const bool arm = is_arm(instance);
  std::string name = option("image");
  const bool gpu = settings_.offers.empty() || !instance.starts_with("m");
  if (name.empty())
    name = gpu ? fmt::format(fmt::runtime(gpu_image), arm ? "arm64" : "x86_64")
               : fmt::format(fmt::runtime(plain_image), arm ? "arm64" : "amd64");
  const std::lock_guard lock(mutex_);
  Image& kept = images_[region + " " + name];
  if (!kept.id.empty())
    return kept;
  Image found;
  found.id = name;
  if (name.starts_with("/")) {
    const auto answer =
        wire_.json("ssm", region, "AmazonSSM.GetParameter", Json::object({{"Name", name}}));
    if (!answer)
      return std::unexpected(answer.error());
    found.id = (*answer)["Parameter"]["Value"].str_or("");
  }
  const auto described = wire_.ec2(region, "DescribeImages", {{"ImageId.1", found.id}});
  if (!described)
    return std::unexpected(described.error());
  const net::XmlElement* images = described->child("imagesSet");
  if (!images || images->children.empty())
    return std::unexpected(
        ApiError{400, "InvalidAMIID.NotFound", fmt::format("image {} was not found", found.id)});
  found.root_device = images->children.front().child_text("rootDeviceName");
  kept = found;
  return found;
}

// One for each zone. It costs nothing and stays, as the security group does.
Answer<std::string> Ec2Pool::placement_group(const std::string& region, const std::string& zone) {
  std::string name = fmt::format("billow-{}-{}", options_.installation, zone);
  const std::lock_guard lock(mutex_);
  if (groups_.contains(name))
    return name;
  const auto made = wire_.ec2(region, "CreatePlacementGroup",
                              {{"GroupName", name},
                               {"Strategy", "cluster"},
                               {"TagSpecification.1.ResourceType", "placement-group"},
                               {"TagSpecification.1.Tag.1.Key", "billow:installation"},
                               {"TagSpecification.1.Tag.1.Value", options_.installation}});
  if (!made && made.error().code != "InvalidPlacementGroup.Duplicate")
    return std::unexpected(made.error());
  groups_.insert(name);
  return name;
}

Answer<Launch> Ec2Pool::prepare(const Order& order) {
  const MachineOffer& offer = *order.machine.offer;
  const auto where = place(offer.region);
  if (!where)
    return std::unexpected(where.error());
  const auto subnet = where->subnets.find(offer.zone);
  if (subnet == where->subnets.end())
    return std::unexpected(
        ApiError{400, "Unsupported", fmt::format("zone {} has no subnet for Billow", offer.zone)});
  auto boots = image(offer.region, offer.instance);
  if (!boots)
    return std::unexpected(boots.error());
  Launch launch;
  launch.order = &order;
  launch.installation = options_.installation;
  launch.pool = settings_.name;
  launch.subnet = subnet->second;
  launch.group = where->group;
  launch.image = std::move(*boots);
  launch.user_data = boot_script(
      order, settings_,
      {.rank = std::string(own_index), .end = {}, .cache_disks = std::string(cache_disks)});
  launch.instance_profile = option("instance_profile");
  launch.public_address = option("public_address") != "false";
  if (order.machine.disk_mib > 0 || (order.machine.nodes > 1 && offer.fabric == "efa"))
    launch.facts = type_facts(offer.region, offer.instance);
  // The node's data go to the local disks if these are large enough, file system included.
  launch.volume_gib = parse_int(option("volume_gib"), 8, 16384).value_or(200);
  constexpr std::int64_t gb = 1'000'000'000;
  if (launch.facts.local_disk_gb * 95 / 100 < (order.machine.disk_mib << 20) / gb + 1)
    launch.volume_gib = boot_disk_gib(order.machine, launch.volume_gib);
  if (order.machine.nodes > 1) {
    auto together = placement_group(offer.region, offer.zone);
    if (!together)
      return std::unexpected(together.error());
    launch.placement_group = std::move(*together);
  }
  return launch;
}

Ordered Ec2Pool::want(const Order& order) {
  if (!order.machine.offer)
    return std::unexpected(Refusal{RefusalKind::settings, "the order names no offer"});
  if (order.machine.is_disk())
    return want_disk(order.machine);
  const auto launch = prepare(order);
  if (!launch)
    return std::unexpected(ec2_refusal(launch.error()));
  if (launch->user_data.size() > user_data_bytes_max)
    return std::unexpected(
        Refusal{RefusalKind::settings,
                fmt::format("the start-up script has {} bytes, and EC2 takes at most {}: give the "
                            "pool fewer or shorter labels",
                            launch->user_data.size(), user_data_bytes_max)});
  const auto made = wire_.ec2(order.machine.offer->region, "RunInstances", run_instances(*launch));
  if (made)
    return {};
  // The token was used before by an earlier life of this head, with another join token inside: the
  // machine exists, and that token is still good.
  if (made.error().code == "IdempotentParameterMismatch")
    return {};
  if (made.error().code == "IdempotentInstanceTerminated")
    return std::unexpected(Refusal{RefusalKind::capacity, made.error().text()});
  return std::unexpected(ec2_refusal(made.error()));
}

Result<std::vector<MachineSighting>> Ec2Pool::nodes() {
  SeenMachines seen;
  std::vector<MachineSighting> out;
  for (const std::string& region : regions()) {
    Parameters look{{"MaxResults", "1000"}};
    add_filter(look, "tag:billow:installation", {options_.installation});
    add_filter(look, "tag:billow:pool", {settings_.name});
    const auto listed =
        wire_.pages(region, "DescribeInstances", look,
                    [&](const net::XmlElement& page) { read_instances(page, region, seen); });
    // A region that does not answer may have machines: then nothing is known.
    if (!listed)
      return fail(Code::unavailable,
                  fmt::format("{}: the list of machines: {}", region, listed.error().text()));
    if (settings_.cache_gib > 0)
      if (const auto disks = list_disks(region, out); !disks)
        return fail(Code::unavailable,
                    fmt::format("{}: the list of cache disks: {}", region, disks.error().text()));
  }
  for (const auto& [machine, instances] : seen)
    if (named_after(machine, settings_.name))
      out.push_back(sighting_of(machine, instances));
  return out;
}

Status Ec2Pool::release(const MachineSighting& machine) {
  if (machine.ended)
    return {};
  const auto slash = machine.external.find('/');
  if (slash == std::string::npos)
    return fail(Code::invalid, fmt::format("machine {} has no instance", machine.name));
  if (machine.external.compare(slash + 1, 4, "vol-") == 0)
    return release_disk(machine);
  Parameters ids;
  for (const std::string& id : split(std::string_view(machine.external).substr(slash + 1), ','))
    ids.emplace_back(fmt::format("InstanceId.{}", ids.size() + 1), id);
  const auto ended = wire_.ec2(machine.external.substr(0, slash), "TerminateInstances", ids);
  // "Not found" may be a machine too young to be known everywhere: it is asked again as long as the
  // list has it.
  if (ended || ended.error().code == "InvalidInstanceID.NotFound")
    return {};
  return fail(Code::unavailable,
              fmt::format("cannot end {}: {}", machine.name, ended.error().text()));
}

}  // namespace ec2

namespace {

Status check_ec2(const billow::Pool& settings) {
  for (const auto& [key, value] : settings.options)
    if (key == "endpoint" && !value.starts_with("http://") && !value.starts_with("https://"))
      return fail(Code::invalid, fmt::format("endpoint \"{}\" is not a URL", value));
    else if (key == "gang_caches" && value != "true" && value != "false")
      return fail(Code::invalid, fmt::format("gang_caches must be true or false, not {}", value));
  return {};
}

std::unique_ptr<Pool> make_ec2(const billow::Pool& settings, const Options& options) {
  return std::make_unique<ec2::Ec2Pool>(settings, options, [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value ? value : "");
  });
}

}  // namespace

const Kind ec2_kind = {
    .name = "ec2",
    .capabilities = {.sizes_to_demand = false,
                     .several_nodes_at_once = true,
                     .list_is_final = false,
                     .from_offers = true,
                     .bills_from_order = true,
                     .list_lag = minutes(5),
                     .disk_mib_max = boot_disk_mib_max(16384),
                     .cache_gib_month = {80'000'000}},  // gp3 in us-east-1, 2026-11
    .options = {{"regions", "regions to rent in, separated by commas", true},
                {"profile", "profile in ~/.aws of the user who runs the head"},
                {"gpu_types", "rent only these GPUs, e.g. H100,L4"},
                {"image",
                 "image id, or the name of an SSM parameter (default: AWS's image with a "
                 "driver)"},
                {"subnets", "subnets to use (default: the default subnet of each zone)"},
                {"security_group", "security group (default: one is created)"},
                {"instance_profile", "IAM instance profile of the machines"},
                {"volume_gib", "size of the root volume (default 200)"},
                {"public_address", "false: no public address; the subnets need a NAT gateway"},
                {"proxy", "proxy through which machines reach the head: http://HOST:PORT"},
                {"gang_caches", "true: with --cache, each node of a gang has a cache disk, too"},
                {"endpoint", "URL of all services, for proxies and tests"}},
    .token_life = hours(1),
    .check = check_ec2,
    .make = make_ec2,
};

}  // namespace billow::pool
