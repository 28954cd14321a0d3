// Volumes that keep the caches of a pool's machines. They are created with their tags, stay when
// their machine ends, and are deleted only by name. EC2 attaches a volume to a running instance,
// not in the request that creates one.
#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "base/crypto.h"
#include "base/formats/utc.h"
#include "pool/ec2/ec2_pool.h"

namespace billow::pool::ec2 {
namespace {

constexpr const char* attach_as = "/dev/sdf";

std::string volume_of(const MachineSighting& disk) {
  return disk.external.substr(disk.external.find('/') + 1);
}

MachineSighting disk_sighting(const net::XmlElement& volume,
                              const std::string& region,
                              std::string name) {
  MachineSighting out;
  out.name = std::move(name);
  out.external = region + "/" + std::string(volume.child_text("volumeId"));
  out.note = volume.child_text("status");
  out.attached = out.note == "in-use";
  out.billed_from = utc_or_zero(volume.child_text("createTime"));
  if (out.note == "error")
    out.failed = RefusalKind::capacity;
  return out;
}

}  // namespace

// The one in use stays, else the oldest.
void name_surplus(std::vector<MachineSighting>& disks) {
  const auto rank = [](const MachineSighting& disk) {
    return std::tuple(!disk.attached, disk.billed_from, disk.external);
  };
  std::ranges::sort(disks, [&](const MachineSighting& a, const MachineSighting& b) {
    return a.name != b.name ? a.name < b.name : rank(a) < rank(b);
  });
  std::string kept;
  for (MachineSighting& disk : disks) {
    if (disk.name == kept)
      disk.name += "-surplus-" + volume_of(disk);
    else
      kept = disk.name;
  }
}

Parameters create_volume(const DiskOrder& order) {
  return {{"AvailabilityZone", order.zone},
          {"Size", std::to_string(order.gib)},
          {"VolumeType", "gp3"},
          {"ClientToken", order.token},
          {"TagSpecification.1.ResourceType", "volume"},
          {"TagSpecification.1.Tag.1.Key", "Name"},
          {"TagSpecification.1.Tag.1.Value", "billow-" + order.name},
          {"TagSpecification.1.Tag.2.Key", "billow:installation"},
          {"TagSpecification.1.Tag.2.Value", order.installation},
          {"TagSpecification.1.Tag.3.Key", "billow:pool"},
          {"TagSpecification.1.Tag.3.Value", order.pool},
          {"TagSpecification.1.Tag.4.Key", "billow:cache"},
          {"TagSpecification.1.Tag.4.Value", order.name}};
}

// A disk of this name may have existed before, and EC2 remembers tokens: the time of the order is
// part of it.
Ordered Ec2Pool::want_disk(const Machine& disk) {
  const DiskOrder order{.name = disk.name,
                        .installation = options_.installation,
                        .pool = settings_.name,
                        .zone = disk.offer->zone,
                        .token = sha256_hex(fmt::format("{}/{}/{}", options_.installation,
                                                        disk.name, disk.wanted_at.ns)),
                        .gib = disk.volume_gib};
  const auto made = wire_.ec2(disk.offer->region, "CreateVolume", create_volume(order));
  if (made)
    return {};
  return std::unexpected(Refusal{kind_of(made.error()), made.error().text()});
}

Answer<void> Ec2Pool::list_disks(const std::string& region, std::vector<MachineSighting>& out) {
  Parameters look{{"MaxResults", "500"}};
  add_filter(look, "tag:billow:installation", {options_.installation});
  add_filter(look, "tag:billow:pool", {settings_.name});
  add_filter(look, "tag-key", {"billow:cache"});
  std::vector<MachineSighting> disks;
  const auto listed =
      wire_.pages(region, "DescribeVolumes", look, [&](const net::XmlElement& page) {
        const net::XmlElement* volumes = page.child("volumeSet");
        if (!volumes)
          return;
        for (const net::XmlElement& volume : volumes->children) {
          std::string name;
          if (const net::XmlElement* tags = volume.child("tagSet"))
            for (const net::XmlElement& tag : tags->children)
              if (tag.child_text("key") == "billow:cache")
                name = tag.child_text("value");
          if (is_cache_of(name, settings_.name) && volume.child_text("status") != "deleted")
            disks.push_back(disk_sighting(volume, region, std::move(name)));
        }
      });
  if (!listed)
    return listed;
  name_surplus(disks);
  std::ranges::move(disks, std::back_inserter(out));
  return {};
}

Status Ec2Pool::release_disk(const MachineSighting& disk) {
  const auto gone = wire_.ec2(disk.external.substr(0, disk.external.find('/')), "DeleteVolume",
                              {{"VolumeId", volume_of(disk)}});
  if (gone || gone.error().code == "InvalidVolume.NotFound")
    return {};
  return fail(Code::unavailable,
              fmt::format("cannot delete {}: {}", disk.name, gone.error().text()));
}

Status Ec2Pool::attach(const MachineSighting& machine, const MachineSighting& disk) {
  if (machine.note != "running" || disk.note != "available")
    return {};
  const auto slash = machine.external.find('/');
  const auto done = wire_.ec2(machine.external.substr(0, slash), "AttachVolume",
                              {{"VolumeId", volume_of(disk)},
                               {"InstanceId", machine.external.substr(slash + 1)},
                               {"Device", attach_as}});
  // The list is older than the answer: it is asked again.
  for (const char* code : {"IncorrectState", "IncorrectInstanceState", "VolumeInUse"})
    if (!done && done.error().code == code)
      return {};
  if (done)
    return {};
  return fail(Code::unavailable, done.error().text());
}

}  // namespace billow::pool::ec2
