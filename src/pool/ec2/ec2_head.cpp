#include "pool/ec2/ec2_head.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "base/crypto.h"
#include "base/text.h"

namespace billow::pool::ec2 {
namespace {

constexpr const char* installation_tag = "billow:installation";
constexpr const char* head_tag = "billow:head";
constexpr int tries_max = 8;          // of one step
constexpr int state_looks_max = 300;  // one a second
constexpr const char* system_image =
    "/aws/service/canonical/ubuntu/server/24.04/stable/current/{}/hvm/ebs-gp3/ami-id";

std::string tag_of(const net::XmlElement& thing, std::string_view key) {
  if (const net::XmlElement* tags = thing.child("tagSet"))
    for (const net::XmlElement& tag : tags->children)
      if (tag.child_text("key") == key)
        return std::string(tag.child_text("value"));
  return {};
}

void add_tags(Parameters& out, const std::string& kind, const std::string& installation, int n) {
  const std::string prefix = fmt::format("TagSpecification.{}.", n);
  out.emplace_back(prefix + "ResourceType", kind);
  const std::vector<std::pair<std::string, std::string>> tags = {
      {"Name", "billow-head"}, {installation_tag, installation}, {head_tag, "head"}};
  for (std::size_t t = 0; t < tags.size(); ++t) {
    out.emplace_back(fmt::format("{}Tag.{}.Key", prefix, t + 1), tags[t].first);
    out.emplace_back(fmt::format("{}Tag.{}.Value", prefix, t + 1), tags[t].second);
  }
}

// Nobody knows whether it was done, or it was not and may be asked again.
bool may_repeat(const ApiError& error) {
  return error.status == 0 || error.status >= 500 || error.code == "RequestLimitExceeded";
}

bool is_ipv6(const std::string& network) {
  return network.find(':') != std::string::npos;
}

// One rule for each network: all are for the head's port.
Parameters rule(const std::string& group, std::uint16_t port, const std::string& network) {
  const std::string range = is_ipv6(network) ? "IpPermissions.1.Ipv6Ranges.1.CidrIpv6"
                                             : "IpPermissions.1.IpRanges.1.CidrIp";
  return {{"GroupId", group},
          {"IpPermissions.1.IpProtocol", "tcp"},
          {"IpPermissions.1.FromPort", std::to_string(port)},
          {"IpPermissions.1.ToPort", std::to_string(port)},
          {range, network}};
}

std::vector<std::string> networks_of(const net::XmlElement& group) {
  std::vector<std::string> out;
  const net::XmlElement* rules = group.child("ipPermissions");
  if (!rules)
    return out;
  for (const net::XmlElement& one : rules->children)
    for (const auto& [list, name] : {std::pair("ipRanges", "cidrIp"), {"ipv6Ranges", "cidrIpv6"}})
      if (const net::XmlElement* ranges = one.child(list))
        for (const net::XmlElement& range : ranges->children)
          out.emplace_back(range.child_text(name));
  return out;
}

template <class Each>
void each_in(const net::XmlElement& page, std::string_view set, const Each& each) {
  if (const net::XmlElement* list = page.child(set))
    for (const net::XmlElement& one : list->children)
      each(one);
}

}  // namespace

Answer<net::XmlElement> HeadMachine::once(const std::string& action, const Parameters& parameters) {
  return wire_.ec2(settings_.region, action, parameters);
}

Answer<net::XmlElement> HeadMachine::sure(const std::string& action, const Parameters& parameters) {
  for (int tried = 1;; ++tried) {
    auto answer = once(action, parameters);
    if (answer || !may_repeat(answer.error()) || tried == tries_max)
      return answer;
    ::sleep(1);
  }
}

Answer<std::vector<net::XmlElement>> HeadMachine::listed(const char* action) {
  Parameters look;
  add_filter(look, "tag-key", {head_tag});
  if (!settings_.installation.empty())
    add_filter(look, fmt::format("tag:{}", installation_tag), {settings_.installation});
  for (int tried = 1;; ++tried) {
    std::vector<net::XmlElement> pages;
    const auto done = wire_.pages(settings_.region, action, look,
                                  [&](const net::XmlElement& page) { pages.push_back(page); });
    if (done)
      return pages;
    if (!may_repeat(done.error()) || tried == tries_max)
      return std::unexpected(done.error());
    ::sleep(1);
  }
}

Result<std::string> HeadMachine::identity() {
  const Credentials credentials = BILLOW_TRY(wire_.credentials().get());
  const auto said = wire_.query("sts", settings_.region, "GetCallerIdentity", {});
  if (!said)
    return pass(identity_error(said.error()));
  const net::XmlElement* who = said->child("GetCallerIdentityResult");
  return fmt::format("{} ({})", who ? who->child_text("Arn") : "?", credentials.source);
}

Result<std::vector<HeadParts>> HeadMachine::find() {
  std::map<std::string, HeadParts> heads;
  const auto of = [&](const net::XmlElement& thing) -> HeadParts& {
    return heads[tag_of(thing, installation_tag)];
  };
  const auto instance = [&](const net::XmlElement& one) {
    const net::XmlElement* state = one.child("instanceState");
    const net::XmlElement* where = one.child("placement");
    HeadParts::Instance seen{std::string(one.child_text("instanceId")),
                             std::string(where ? where->child_text("availabilityZone") : ""),
                             std::string(state ? state->child_text("name") : "")};
    if (seen.state != "terminated")
      of(one).instances.push_back(std::move(seen));
  };
  const auto volume = [&](const net::XmlElement& one) {
    of(one).disks.push_back({std::string(one.child_text("volumeId")),
                             std::string(one.child_text("availabilityZone")),
                             std::string(one.child_text("status"))});
  };
  const auto address = [&](const net::XmlElement& one) {
    of(one).addresses.push_back(
        {std::string(one.child_text("allocationId")), std::string(one.child_text("publicIp"))});
  };
  const auto group = [&](const net::XmlElement& one) {
    of(one).groups.push_back({std::string(one.child_text("groupId")), networks_of(one)});
  };
  struct List {
    const char* action;
    std::function<void(const net::XmlElement&)> page;
  };
  const std::vector<List> lists = {
      {"DescribeInstances",
       [&](const net::XmlElement& page) {
         each_in(page, "reservationSet", [&](const net::XmlElement& reservation) {
           each_in(reservation, "instancesSet", instance);
         });
       }},
      {"DescribeVolumes",
       [&](const net::XmlElement& page) {
         each_in(page, "volumeSet", volume);
       }},
      {"DescribeAddresses",
       [&](const net::XmlElement& page) {
         each_in(page, "addressesSet", address);
       }},
      {"DescribeSecurityGroups",
       [&](const net::XmlElement& page) {
         each_in(page, "securityGroupInfo", group);
       }},
  };
  for (const List& list : lists) {
    const auto pages = listed(list.action);
    if (!pages)
      return pass(error_of(pages.error()), list.action);
    for (const net::XmlElement& page : *pages)
      list.page(page);
  }
  std::vector<HeadParts> out;
  for (auto& [installation, parts] : heads) {
    // What is found may be ended, so a server that ignores filters must not decide.
    if (!settings_.installation.empty() && installation != settings_.installation)
      continue;
    parts.installation = installation;
    out.push_back(std::move(parts));
  }
  return out;
}

Result<HeadParts> HeadMachine::ours() {
  auto found = BILLOW_TRY(find());
  return found.empty() ? HeadParts{} : std::move(found.front());
}

Answer<std::string> HeadMachine::image_id() {
  if (!settings_.image.empty())
    return settings_.image;
  const bool arm = settings_.instance.starts_with("t4g.");
  const auto answer = wire_.json(
      "ssm", settings_.region, "AmazonSSM.GetParameter",
      Json::object({{"Name", fmt::format(fmt::runtime(system_image), arm ? "arm64" : "amd64")}}));
  if (!answer)
    return std::unexpected(answer.error());
  return std::string((*answer)["Parameter"]["Value"].str_or(""));
}

Result<HeadPlace> HeadMachine::place(const std::string& zone) {
  Parameters look{{"LocationType", "availability-zone"}};
  add_filter(look, "instance-type", {settings_.instance});
  std::vector<std::string> zones;
  const auto offered = wire_.pages(
      settings_.region, "DescribeInstanceTypeOfferings", look, [&](const net::XmlElement& page) {
        each_in(page, "instanceTypeOfferingSet", [&](const net::XmlElement& one) {
          zones.emplace_back(one.child_text("location"));
        });
      });
  if (!offered)
    return pass(error_of(offered.error()), "DescribeInstanceTypeOfferings");
  Parameters nets;
  add_filter(nets, settings_.subnet.empty() ? "default-for-az" : "subnet-id",
             {settings_.subnet.empty() ? "true" : settings_.subnet});
  HeadPlace out;
  const auto listed =
      wire_.pages(settings_.region, "DescribeSubnets", nets, [&](const net::XmlElement& page) {
        each_in(page, "subnetSet", [&](const net::XmlElement& one) {
          const std::string in(one.child_text("availabilityZone"));
          const bool fits = zone.empty() ? std::ranges::count(zones, in) > 0 : in == zone;
          if (fits && (out.zone.empty() || in < out.zone))
            out = {in,
                   std::string(one.child_text("subnetId")),
                   std::string(one.child_text("vpcId")),
                   {}};
        });
      });
  if (!listed)
    return pass(error_of(listed.error()), "DescribeSubnets");
  if (out.zone.empty())
    return fail(Code::not_found,
                fmt::format("region {} has no default subnet{} for a {}", settings_.region,
                            zone.empty() ? "" : " in zone " + zone, settings_.instance),
                "name one with --subnet");
  const auto id = image_id();
  if (!id)
    return pass(error_of(id.error()), "the image");
  const auto described = once("DescribeImages", {{"ImageId.1", *id}});
  if (!described)
    return pass(error_of(described.error()), "DescribeImages");
  each_in(*described, "imagesSet", [&](const net::XmlElement& one) {
    out.image = {*id, std::string(one.child_text("rootDeviceName"))};
  });
  if (out.image.id.empty())
    return fail(Code::not_found, fmt::format("image {} was not found", *id));
  return out;
}

Result<HeadParts::Disk> HeadMachine::make_disk(const std::string& zone) {
  if (nonce_.empty())
    nonce_ = random_token();
  Parameters order{{"AvailabilityZone", zone},
                   {"Size", std::to_string(settings_.disk_gib)},
                   {"VolumeType", "gp3"},
                   {"Encrypted", "true"},
                   {"ClientToken", sha256_hex(nonce_ + "/disk")}};
  add_tags(order, "volume", settings_.installation, 1);
  const auto made = sure("CreateVolume", order);
  if (!made)
    return pass(error_of(made.error()), "CreateVolume");
  return HeadParts::Disk{std::string(made->child_text("volumeId")), zone, "creating"};
}

// The request has no token: the list says what it has created. What came twice is released.
Result<HeadParts::Address> HeadMachine::make_address() {
  Parameters order{{"Domain", "vpc"}};
  add_tags(order, "elastic-ip", settings_.installation, 1);
  std::optional<ApiError> refused;
  for (int tried = 1; tried <= tries_max; ++tried) {
    const HeadParts there = BILLOW_TRY(ours());
    for (std::size_t i = 1; i < there.addresses.size(); ++i)
      (void)sure("ReleaseAddress", {{"AllocationId", there.addresses[i].id}});
    if (!there.addresses.empty())
      return there.addresses.front();
    if (refused && !may_repeat(*refused))
      break;
    if (const auto made = once("AllocateAddress", order); !made) {
      refused = made.error();
      ::sleep(1);
    }
  }
  return pass(error_of(refused.value_or(ApiError{0, "", "no address came"})), "AllocateAddress");
}

Result<std::string> HeadMachine::make_group(const std::string& vpc) {
  Parameters order{{"GroupName", "billow-head-" + settings_.installation},
                   {"GroupDescription", "Billow head: one port, and only for the networks named"},
                   {"VpcId", vpc}};
  add_tags(order, "security-group", settings_.installation, 1);
  for (int tried = 1;; ++tried) {
    const HeadParts there = BILLOW_TRY(ours());
    if (!there.groups.empty()) {
      BILLOW_TRY_VOID(set_rules(there.groups.front()));
      return there.groups.front().id;
    }
    const auto made = once("CreateSecurityGroup", order);
    // A duplicate is our own: the order was carried out twice, or the list does not show it yet.
    const bool again =
        !made && (may_repeat(made.error()) || made.error().code == "InvalidGroup.Duplicate");
    if (!made && (!again || tried == tries_max))
      return pass(error_of(made.error()), "CreateSecurityGroup");
    if (!made)
      ::sleep(1);
  }
}

Status HeadMachine::set_rules(const HeadParts::Group& group) {
  const auto in = [](const std::vector<std::string>& list, const std::string& one) {
    return std::ranges::find(list, one) != list.end();
  };
  for (const std::string& network : settings_.allow)
    if (!in(group.allow, network)) {
      const auto done =
          sure("AuthorizeSecurityGroupIngress", rule(group.id, settings_.port, network));
      if (!done && done.error().code != "InvalidPermission.Duplicate")
        return pass(error_of(done.error()), "AuthorizeSecurityGroupIngress");
    }
  for (const std::string& network : group.allow)
    if (!in(settings_.allow, network)) {
      const auto done = sure("RevokeSecurityGroupIngress", rule(group.id, settings_.port, network));
      if (!done && done.error().code != "InvalidPermission.NotFound")
        return pass(error_of(done.error()), "RevokeSecurityGroupIngress");
    }
  return {};
}

Result<std::string> HeadMachine::make_instance(const HeadPlace& place,
                                               const std::string& group,
                                               const std::string& user_data) {
  if (user_data.size() > user_data_bytes_max)
    return fail(Code::invalid, "the start-up script of the head is too long for EC2");
  if (nonce_.empty())
    nonce_ = random_token();
  Parameters order{
      {"MinCount", "1"},
      {"MaxCount", "1"},
      {"ClientToken", sha256_hex(nonce_ + "/instance")},
      {"ImageId", place.image.id},
      {"InstanceType", settings_.instance},
      {"UserData", base64(user_data)},
      // One that never gets its program ends itself; the state is on a disk that stays.
      {"InstanceInitiatedShutdownBehavior", "terminate"},
      {"Placement.AvailabilityZone", place.zone},
      {"MetadataOptions.HttpTokens", "required"},
      {"MetadataOptions.HttpEndpoint", "enabled"},
      {"MetadataOptions.HttpPutResponseHopLimit", "1"},
      {"NetworkInterface.1.DeviceIndex", "0"},
      {"NetworkInterface.1.SubnetId", place.subnet},
      {"NetworkInterface.1.SecurityGroupId.1", group},
      {"NetworkInterface.1.AssociatePublicIpAddress", "true"},
      {"NetworkInterface.1.DeleteOnTermination", "true"},
      {"BlockDeviceMapping.1.DeviceName", place.image.root_device},
      {"BlockDeviceMapping.1.Ebs.VolumeSize", "16"},
      {"BlockDeviceMapping.1.Ebs.VolumeType", "gp3"},
      {"BlockDeviceMapping.1.Ebs.DeleteOnTermination", "true"}};
  if (!settings_.instance_profile.empty())
    order.emplace_back("IamInstanceProfile.Name", settings_.instance_profile);
  // Its own disk and card end with it and need only the tag that the policy asks for.
  add_tags(order, "instance", settings_.installation, 1);
  int number = 2;
  for (const char* kind : {"volume", "network-interface"}) {
    const std::string prefix = fmt::format("TagSpecification.{}.", number++);
    order.emplace_back(prefix + "ResourceType", kind);
    order.emplace_back(prefix + "Tag.1.Key", installation_tag);
    order.emplace_back(prefix + "Tag.1.Value", settings_.installation);
  }
  const auto made = sure("RunInstances", order);
  if (!made)
    return pass(error_of(made.error()), "RunInstances");
  std::string id;
  each_in(*made, "instancesSet",
          [&](const net::XmlElement& one) { id = one.child_text("instanceId"); });
  return id;
}

Status HeadMachine::wait_for(const std::string& instance, const std::string& state) {
  for (int look = 0; look < state_looks_max; ++look) {
    const HeadParts there = BILLOW_TRY(ours());
    std::string seen = look < 30 ? "pending" : "terminated";  // new ones are not listed at once
    for (const HeadParts::Instance& one : there.instances)
      if (one.id == instance)
        seen = one.state;
    if (seen == state || (state == "terminated" && there.instances.empty()))
      return {};
    if (seen == "terminated")
      return fail(Code::unavailable, fmt::format("EC2 ended {} at once", instance),
                  "try another region, or another type with --instance-type");
    ::sleep(1);
  }
  return fail(Code::timed_out,
              fmt::format("{} is not {} after {} seconds", instance, state, state_looks_max));
}

Status HeadMachine::connect(const std::string& instance,
                            const HeadParts::Disk& disk,
                            const HeadParts::Address& address) {
  BILLOW_TRY_VOID(wait_for(instance, "running"));
  for (int tried = 1;; ++tried) {
    const auto done = once(
        "AttachVolume", {{"VolumeId", disk.id}, {"InstanceId", instance}, {"Device", "/dev/sdf"}});
    // A volume that is still being created is in the wrong state; one whose answer was lost is in
    // use.
    if (done || done.error().code == "VolumeInUse")
      break;
    if ((!may_repeat(done.error()) && done.error().code != "IncorrectState") || tried == 60)
      return pass(error_of(done.error()), "AttachVolume");
    ::sleep(1);
  }
  const auto done =
      sure("AssociateAddress", {{"AllocationId", address.id}, {"InstanceId", instance}});
  if (!done)
    return pass(error_of(done.error()), "AssociateAddress");
  return {};
}

Status HeadMachine::remove(const HeadParts& parts, bool with_disk) {
  settings_.installation = parts.installation;
  const auto gone = [](const Answer<net::XmlElement>& answer) {
    return answer || answer.error().code.ends_with(".NotFound");
  };
  Parameters ids;
  for (const HeadParts::Instance& one : parts.instances)
    ids.emplace_back(fmt::format("InstanceId.{}", ids.size() + 1), one.id);
  if (!ids.empty()) {
    if (const auto ended = sure("TerminateInstances", ids); !gone(ended))
      return pass(error_of(ended.error()), "TerminateInstances");
    for (const HeadParts::Instance& one : parts.instances)
      BILLOW_TRY_VOID(wait_for(one.id, "terminated"));
  }
  // A part whose removal was carried out and never answered has no tags any more, so a policy that
  // asks for them refuses the repetition: the list decides.
  const auto end_part = [&](const char* action, const char* parameter, const std::string& id,
                            auto list) -> Status {
    const auto done = sure(action, {{parameter, id}});
    if (gone(done))
      return {};
    const HeadParts there = BILLOW_TRY(ours());
    if (std::ranges::none_of(there.*list, [&](const auto& one) { return one.id == id; }))
      return {};
    return pass(error_of(done.error()), action);
  };
  for (const HeadParts::Address& one : parts.addresses)
    BILLOW_TRY_VOID(end_part("ReleaseAddress", "AllocationId", one.id, &HeadParts::addresses));
  for (const HeadParts::Group& one : parts.groups)
    BILLOW_TRY_VOID(end_part("DeleteSecurityGroup", "GroupId", one.id, &HeadParts::groups));
  for (const HeadParts::Disk& one : parts.disks)
    if (with_disk)
      BILLOW_TRY_VOID(end_part("DeleteVolume", "VolumeId", one.id, &HeadParts::disks));
  return {};
}

}  // namespace billow::pool::ec2
