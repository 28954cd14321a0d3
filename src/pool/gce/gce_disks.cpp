// Persistent disks that keep the caches of a pool's machines. They are created with their labels,
// stay when their machine is deleted, and are deleted only by name.
#include <fmt/format.h>

#include "base/crypto.h"
#include "net/http/http.h"
#include "pool/gce/gce_pool.h"
#include "pool/oauth/api_client.h"
#include "pool/resource_name.h"

namespace billow::pool {
namespace {

constexpr std::string_view projects = "/compute/v1/projects/";
constexpr std::string_view disk_prefix = "billow cache ";
constexpr std::string_view disk_fields =
    "items/*/disks(name,zone,status,description,creationTimestamp,users),items/*/warning,"
    "unreachables,nextPageToken";
constexpr int disk_page_size = 500;
constexpr std::size_t disk_pages_max = 200;

}  // namespace

Json gce_disk_body(const GceDisk& disk, const GceSettings& settings) {
  return Json::object(
      {{"name", disk.name},
       {"description", std::string(disk_prefix) + disk.disk},
       {"sizeGb", std::to_string(disk.gb)},
       {"type", fmt::format("zones/{}/diskTypes/{}", disk.zone, settings.cache_kind)},
       {"labels", Json::object({{"billow-installation", label_value(disk.installation)},
                                {"billow-cache", label_value(disk.pool)}})}});
}

std::string gce_disks_target(const GceDisk& disk) {
  return fmt::format("{}{}/zones/{}/disks?requestId={}", projects, disk.project, disk.zone,
                     disk.request_id);
}

std::string gce_disk_target(const std::string& project,
                            const std::string& zone,
                            const std::string& name,
                            const std::string& request_id) {
  return fmt::format("{}{}/zones/{}/disks/{}?requestId={}", projects, project, zone, name,
                     request_id);
}

std::string gce_disk_list_target(const std::string& project,
                                 const std::string& installation,
                                 const std::string& pool,
                                 const std::string& page) {
  std::vector<std::pair<std::string, std::string>> query = {
      {"filter", fmt::format("(labels.billow-installation = \"{}\") AND (labels.billow-cache = "
                             "\"{}\")",
                             label_value(installation), label_value(pool))},
      {"maxResults", std::to_string(disk_page_size)},
      {"returnPartialSuccess", "true"},
      {"fields", std::string(disk_fields)}};
  if (!page.empty())
    query.emplace_back("pageToken", page);
  return fmt::format("{}{}/aggregated/disks?{}", projects, project, form(query));
}

std::string gce_attach_target(const GceDisk& disk, const std::string& instance) {
  return fmt::format("{}{}/zones/{}/instances/{}/attachDisk?requestId={}", projects, disk.project,
                     disk.zone, instance, disk.request_id);
}

Json gce_attach_body(const GceDisk& disk) {
  return Json::object(
      {{"source", fmt::format("projects/{}/zones/{}/disks/{}", disk.project, disk.zone, disk.name)},
       {"deviceName", gce_cache_device},
       {"mode", "READ_WRITE"},
       {"autoDelete", false}});
}

const std::vector<std::string>& gce_cache_permissions() {
  static const std::vector<std::string> list = {
      "compute.disks.delete",
      "compute.disks.list",
      "compute.disks.use",
      "compute.instances.attachDisk",
  };
  return list;
}

// The time of the order is part of the request's id: a disk of this name may have existed before.
Ordered GcePool::want_disk(const Machine& machine) {
  const auto project = this->project();
  if (!project)
    return std::unexpected(refusal_of_error(project.error()));
  const GceDisk disk{.project = *project,
                     .zone = machine.offer->zone,
                     .name = resource_name(options_.installation, machine.name),
                     .installation = options_.installation,
                     .pool = pool_.name,
                     .disk = machine.name,
                     .gb = machine.volume_gib,
                     .request_id = request_uuid(fmt::format("{}\n{}\n{}", options_.installation,
                                                            machine.name, machine.wanted_at.ns))};
  const auto answer = api_.call({.method = net::Method::post,
                                 .target = gce_disks_target(disk),
                                 .body = gce_disk_body(disk, *settings_)});
  if (!answer)
    return std::unexpected(refusal_of_error(answer.error()));
  if (answer->status == 409 && gce_error_reason(answer->body) == "alreadyExists")
    return {};  // the list says whether it is ours
  if (!answer->ok())
    return std::unexpected(gce_refusal(*answer));
  if (const GceOperation operation = read_gce_operation(answer->body); operation.refusal)
    return std::unexpected(*operation.refusal);
  return {};
}

Status GcePool::list_disks(std::vector<MachineSighting>& out) {
  const std::string project = BILLOW_TRY(this->project());
  std::string page;
  for (std::size_t pages = 0; pages < disk_pages_max; ++pages) {
    const ApiAnswer answer = BILLOW_TRY(api_.call(
        {.target = gce_disk_list_target(project, options_.installation, pool_.name, page)}));
    if (!answer.ok() || !gce_is_list(answer.body))
      return fail(Code::unavailable,
                  fmt::format("the list of cache disks: {}", gce_error_text(answer)));
    const GceDiskPage read = read_gce_disks(answer.body);
    for (const std::string& zone : read.silent_zones)
      if (counts(zone))
        return fail(Code::unavailable,
                    fmt::format("zone {} does not answer: its disks are not listed", zone));
    for (const GceListedDisk& disk : read.disks) {
      if (!disk.description.starts_with(disk_prefix))
        continue;
      MachineSighting seen;
      seen.name = disk.description.substr(disk_prefix.size());
      seen.external = disk.zone + "/" + std::string(disk_mark) + disk.name;
      seen.note = disk.status;
      seen.attached = disk.in_use;
      seen.billed_from = disk.created;
      if (disk.status == "FAILED")
        seen.failed = RefusalKind::capacity;
      if (is_cache_of(seen.name, pool_.name))
        out.push_back(std::move(seen));
    }
    if (read.next.empty())
      return {};
    page = read.next;
  }
  return fail(Code::unavailable, "the list of cache disks has too many pages");
}

Status GcePool::drop_disk(const std::string& project,
                          const std::string& zone,
                          const std::string& name) {
  const auto answer =
      api_.call({.method = net::Method::del,
                 .target = gce_disk_target(project, zone, name, request_uuid(random_bytes(16)))});
  if (!answer)
    return pass(answer.error());
  if (answer->ok() || answer->status == 404)
    return {};
  return fail(Code::unavailable, fmt::format("the cache disk {} cannot be deleted: {}", name,
                                             gce_error_text(*answer)));
}

Status GcePool::attach(const MachineSighting& machine, const MachineSighting& disk) {
  if (machine.note != "RUNNING" || disk.note != "READY")
    return {};
  const std::size_t slash = machine.external.find('/');
  const std::size_t mark = disk.external.find(disk_mark);
  if (slash == std::string::npos || mark == std::string::npos)
    return fail(Code::invalid, "it has no zone");
  GceDisk what;
  what.project = BILLOW_TRY(project());
  what.zone = machine.external.substr(0, slash);
  what.name = disk.external.substr(mark + disk_mark.size());
  what.request_id = request_uuid(random_bytes(16));
  const auto answer =
      api_.call({.method = net::Method::post,
                 .target = gce_attach_target(what, machine.external.substr(slash + 1)),
                 .body = gce_attach_body(what)});
  if (!answer)
    return pass(answer.error());
  // Another attempt is under way, or the machine that had it is still being deleted.
  if (answer->ok() || answer->status == 409 ||
      gce_refusal(*answer).kind == RefusalKind::no_answer ||
      gce_error_reason(answer->body) == "resourceInUseByAnotherResource")
    return {};
  return fail(Code::unavailable, gce_error_text(*answer));
}

}  // namespace billow::pool
