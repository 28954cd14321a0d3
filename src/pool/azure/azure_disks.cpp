// Managed disks that keep the caches of a pool's machines. They are created with their tags, stay
// when their machine is deleted, and are deleted only by name.
#include <fmt/format.h>

#include "pool/azure/azure_answer.h"
#include "pool/azure/azure_pool.h"
#include "pool/oauth/api_client.h"
#include "pool/resource_name.h"

namespace billow::pool {
namespace {

// As the client @azure/arm-compute 24 uses them.
constexpr std::string_view disks_version = "api-version=2025-01-02";
constexpr std::string_view attach_version = "api-version=2026-03-01";
constexpr std::size_t disk_pages_max = 200;

std::string compute_path(const AzureGroup& group) {
  return fmt::format("/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Compute",
                     group.subscription, group.name);
}

}  // namespace

Json azure_disk_body(const AzureDisk& disk, const AzureSettings& settings) {
  Json body = Json::object(
      {{"location", disk.region},
       {"tags", Json::object({{"billow-installation", disk.installation},
                              {"billow-pool", disk.pool},
                              {"billow-cache", disk.disk}})},
       {"sku", Json::object({{"name", settings.cache_kind}})},
       {"properties", Json::object({{"creationData", Json::object({{"createOption", "Empty"}})},
                                    {"diskSizeGB", disk.gb}})}});
  if (!disk.zone.empty())
    body.set("zones", json_list(disk.zone));
  return body;
}

std::string azure_disk_target(const AzureGroup& group, const std::string& name) {
  return fmt::format("{}/disks/{}?{}", compute_path(group), name, disks_version);
}

std::string azure_disks_target(const AzureGroup& group) {
  return fmt::format("{}/disks?{}", compute_path(group), disks_version);
}

std::string azure_attach_target(const AzureGroup& group, const std::string& machine) {
  return fmt::format("{}/virtualMachines/{}/attachDetachDataDisks?{}", compute_path(group), machine,
                     attach_version);
}

Json azure_attach_body(const AzureGroup& group, const std::string& disk) {
  return Json::object(
      {{"dataDisksToAttach",
        json_list(Json::object({{"diskId", fmt::format("{}/disks/{}", compute_path(group), disk)},
                                {"lun", azure_cache_lun},
                                {"caching", "ReadOnly"},
                                {"deleteOption", "Detach"}}))}});
}

const std::vector<std::string>& azure_cache_actions() {
  static const std::vector<std::string> list = {
      "Microsoft.Compute/disks/read",
      "Microsoft.Compute/virtualMachines/attachDetachDataDisks/action",
  };
  return list;
}

Ordered AzurePool::want_disk(const Machine& machine) {
  const auto group = this->group();
  if (!group)
    return std::unexpected(refusal_of_error(group.error()));
  const std::string& zone = machine.offer->zone;
  const std::size_t hyphen = zone.rfind('-');
  return put(azure_disk_target(*group, resource_name(options_.installation, machine.name)),
             azure_disk_body({.region = machine.offer->region,
                              .zone = hyphen == std::string::npos ? zone : zone.substr(hyphen + 1),
                              .installation = options_.installation,
                              .pool = pool_.name,
                              .disk = machine.name,
                              .gb = machine.volume_gib},
                             *settings_));
}

Status AzurePool::list_disks(std::vector<MachineSighting>& out) {
  const AzureGroup group = BILLOW_TRY(this->group());
  std::string target = azure_disks_target(group);
  for (std::size_t pages = 0; pages < disk_pages_max; ++pages) {
    const ApiAnswer answer = BILLOW_TRY(api_.call({.target = target}));
    if (answer.status == 404 && azure_error_code(answer.body) == "ResourceGroupNotFound")
      return {};
    if (!answer.ok() || !answer.body["value"].is_array())
      return fail(Code::unavailable,
                  fmt::format("the list of cache disks: {}", azure_error_text(answer)));
    for (const Json& disk : answer.body["value"].items()) {
      MachineSighting seen;
      seen.name = disk.at("tags", "billow-cache").str_or("");
      if (disk.at("tags", "billow-installation").str_or("") != options_.installation ||
          disk.at("tags", "billow-pool").str_or("") != pool_.name ||
          !is_cache_of(seen.name, pool_.name))
        continue;
      seen.external = std::string(disk_mark) + std::string(disk["name"].str_or(""));
      seen.note = disk.at("properties", "provisioningState").str_or("");
      seen.attached = !disk["managedBy"].str_or("").empty();
      if (seen.note == "Failed")
        seen.failed = RefusalKind::capacity;
      out.push_back(std::move(seen));
    }
    target = answer.body["nextLink"].str_or("");
    if (target.empty())
      return {};
  }
  return fail(Code::unavailable, "the list of cache disks has too many pages");
}

Status AzurePool::drop_disk(const std::string& name) {
  const AzureGroup group = BILLOW_TRY(this->group());
  const auto answer =
      api_.call({.method = net::Method::del, .target = azure_disk_target(group, name)});
  if (!answer)
    return pass(answer.error());
  if (answer->ok() || answer->status == 404)
    return {};
  return fail(Code::unavailable, fmt::format("the cache disk {} cannot be deleted: {}", name,
                                             azure_error_text(*answer)));
}

Status AzurePool::attach(const MachineSighting& machine, const MachineSighting& disk) {
  if (machine.note != "Succeeded" || disk.note != "Succeeded" ||
      !disk.external.starts_with(disk_mark))
    return {};
  const AzureGroup group = BILLOW_TRY(this->group());
  const auto answer =
      api_.call({.method = net::Method::post,
                 .target = azure_attach_target(group, machine.external),
                 .body = azure_attach_body(group, disk.external.substr(disk_mark.size()))});
  if (!answer)
    return pass(answer.error());
  // Another attempt is under way, or the machine that had it is still being deleted.
  if (answer->ok() || answer->status == 409 ||
      azure_refusal(*answer, false).kind == RefusalKind::no_answer)
    return {};
  return fail(Code::unavailable, azure_error_text(*answer));
}

}  // namespace billow::pool
