#include "pool/gce/gce_request.h"

#include <fmt/format.h>

#include "base/crypto.h"
#include "base/text.h"
#include "net/http/http.h"
#include "pool/oauth/api_client.h"
#include "pool/resource_name.h"

namespace billow::pool {
namespace {

constexpr std::string_view gce_projects = "/compute/v1/projects/";
constexpr int gce_page_size = 500;
// What a list needs to contain: everything else, such as the start-up files, stays with Google.
constexpr std::string_view gce_list_fields =
    "items/*/instances(name,zone,status,statusMessage,description,labels,creationTimestamp,"
    "scheduling/maxRunDuration),items/*/warning,unreachables,nextPageToken";
// Families of machine types that have GPUs built in.
constexpr std::string_view gpu_types_filter = "name eq \"(a2|a3|a4|a4x|g2|g4)-.*\"";
// Machine types that take no disks of the kind pd-*.
constexpr std::string_view hyperdisk_only[] = {"a3-ultragpu", "a4-", "a4x-", "g4-",
                                               "c4-",         "n4-", "m4-",  "h3-"};

std::string gce_option(const billow::Pool& pool, const char* name, std::string_view fallback = "") {
  const auto found = pool.options.find(name);
  return found == pool.options.end() || found->second.empty() ? std::string(fallback)
                                                              : found->second;
}

std::vector<std::string> gce_option_list(const billow::Pool& pool, const char* name) {
  std::vector<std::string> out;
  for (const std::string& part : split(gce_option(pool, name), ','))
    if (const std::string_view word = trim(part); !word.empty())
      out.emplace_back(word);
  return out;
}

std::string gce_disk_type(const std::string& machine_type) {
  for (const std::string_view family : hyperdisk_only)
    if (machine_type.starts_with(family))
      return "hyperdisk-balanced";
  return "pd-balanced";
}

Json gce_scheduling(const GceOrder& order, const GceSettings& settings) {
  // A machine is deleted, never stopped: a stopped one keeps its name and a disk that costs money.
  Json out = Json::object({{"provisioningModel", order.spot ? "SPOT" : "STANDARD"},
                           {"instanceTerminationAction", "DELETE"},
                           {"automaticRestart", false}});
  // Google cannot move a running machine that has GPUs, or that it may reclaim.
  out.set("onHostMaintenance", order.gpus || order.spot ? "TERMINATE" : "MIGRATE");
  out.set("maxRunDuration",
          Json::object({{"seconds", std::to_string(settings.run_max.ns / 1'000'000'000)}}));
  return out;
}

std::string gce_subnetwork(const GceOrder& order, const std::string& name) {
  return name.find('/') != std::string::npos
             ? name
             : fmt::format("regions/{}/subnetworks/{}", gce_region_of(order.zone), name);
}

Json gce_network(const GceOrder& order, const GceSettings& settings) {
  Json card = Json::object();
  if (!settings.network.empty())
    card.set("network", settings.network);
  if (!settings.subnetwork.empty()) {
    card.set("subnetwork", gce_subnetwork(order, settings.subnetwork));
  }
  if (settings.public_address) {
    Json access = Json::array();
    access.push(Json::object({{"name", "External NAT"}, {"type", "ONE_TO_ONE_NAT"}}));
    card.set("accessConfigs", std::move(access));
  }
  return card;
}

// Everything but the name. In a request for several machines, resources have short names.
Json gce_properties(const GceOrder& order, const GceSettings& settings, const std::string& zone) {
  const GceShape shape = read_gce_shape(order.instance).value_or(GceShape{order.instance, "", 0});
  const auto named = [&](const char* kind, const std::string& name) {
    return zone.empty() ? name : fmt::format("{}/{}/{}", zone, kind, name);
  };
  Json body = Json::object({{"description", std::string(gce_description_prefix) + order.machine}});
  body.set("machineType", named("machineTypes", shape.machine_type));
  body.set("labels", Json::object({{"billow-installation", label_value(order.installation)},
                                   {"billow-pool", label_value(order.pool)},
                                   {"billow-machine", label_value(order.machine)}}));
  if (shape.accelerators > 0)
    body.set(
        "guestAccelerators",
        json_list(Json::object({{"acceleratorType", named("acceleratorTypes", shape.accelerator)},
                                {"acceleratorCount", shape.accelerators}})));
  body.set("scheduling", gce_scheduling(order, settings));
  const std::int64_t disk_gb = order.disk_gb > 0 ? order.disk_gb : settings.disk_gb;
  body.set("disks",
           json_list(Json::object(
               {{"boot", true},
                {"autoDelete", true},
                {"initializeParams",
                 Json::object({{"sourceImage", order.gpus ? settings.image : settings.cpu_image},
                               {"diskSizeGb", std::to_string(disk_gb)},
                               {"diskType", named("diskTypes", gce_disk_type(shape.machine_type))},
                               {"labels", body["labels"]}})}})));
  Json cards = json_list(gce_network(order, settings));
  if (order.nodes > 1 && !gce_fabric(order.instance, settings).empty())
    for (const std::string& subnetwork : settings.fabric_subnetworks)
      cards.push(
          Json::object({{"subnetwork", gce_subnetwork(order, subnetwork)}, {"nicType", "GVNIC"}}));
  body.set("networkInterfaces", std::move(cards));
  Json items = Json::array();
  items.push(Json::object({{"key", "user-data"}, {"value", order.user_data}}));
  // Nobody logs in: the project's ssh keys do not open the machine.
  items.push(Json::object({{"key", "block-project-ssh-keys"}, {"value", "TRUE"}}));
  body.set("metadata", Json::object({{"items", std::move(items)}}));
  if (!settings.service_account.empty())
    body.set("serviceAccounts",
             json_list(Json::object(
                 {{"email", settings.service_account},
                  {"scopes", json_list("https://www.googleapis.com/auth/cloud-platform")}})));
  if (!order.reservation.empty())
    body.set("reservationAffinity",
             Json::object({{"consumeReservationType", "SPECIFIC_RESERVATION"},
                           {"key", "compute.googleapis.com/reservation-name"},
                           {"values", json_list(order.reservation)}}));
  if (!order.policy.empty())
    body.set("resourcePolicies", json_list(order.policy));
  return body;
}

}  // namespace

Result<GceSettings> read_gce_settings(const billow::Pool& pool) {
  GceSettings s;
  s.endpoint = gce_option(pool, "endpoint", "https://compute.googleapis.com");
  while (s.endpoint.ends_with('/'))
    s.endpoint.pop_back();
  BILLOW_TRY_VOID(check_protected("the option endpoint", s.endpoint));
  s.project = gce_option(pool, "project");
  s.credentials = gce_option(pool, "credentials");
  s.regions = gce_option_list(pool, "regions");
  s.zones = gce_option_list(pool, "zones");
  s.image = gce_option(pool, "image",
                       "projects/deeplearning-platform-release/global/images/family/"
                       "common-cu129-ubuntu-2204-nvidia-580");
  s.cpu_image = gce_option(pool, "image",
                           "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-amd64");
  s.network = gce_option(pool, "network");
  s.subnetwork = gce_option(pool, "subnetwork");
  if (s.network.empty() && s.subnetwork.empty())
    s.network = "default";
  if (!s.network.empty() && s.network.find('/') == std::string::npos)
    s.network = "global/networks/" + s.network;
  s.fabric_subnetworks = gce_option_list(pool, "fabric_subnetworks");
  s.service_account = gce_option(pool, "service_account");
  const std::string address = gce_option(pool, "public_address", "true");
  if (address != "true" && address != "false")
    return fail(Code::invalid, fmt::format("public_address is \"{}\"", address),
                "use true or false; without one, the network needs a NAT");
  s.public_address = address == "true";
  const auto disk = parse_int(gce_option(pool, "disk_gb", "200"), 20, 65536);
  if (!disk)
    return fail(Code::invalid, "disk_gb must be a number between 20 and 65536");
  s.disk_gb = *disk;
  const auto run_max = parse_duration(gce_option(pool, "run_max", "7d"));
  if (!run_max || *run_max < minutes(10) || *run_max > hours(24 * 120))
    return fail(Code::invalid, "run_max must be between 10m and 120d",
                "Google deletes each machine after this long");
  s.run_max = *run_max;
  s.cache_kind = gce_option(pool, "cache_kind", "pd-balanced");
  s.gpu_types = gce_option_list(pool, "gpu_types");
  s.attached = gce_option_list(pool, "attached");
  for (const std::string& instance : s.attached)
    BILLOW_TRY(read_gce_shape(instance));
  if (!s.attached.empty() && s.zones.empty())
    return fail(Code::invalid, "the option attached also needs the option zones",
                "add --option zones=us-central1-a");
  return s;
}

Json gce_insert_body(const GceOrder& order, const GceSettings& settings) {
  Json body = gce_properties(order, settings, "zones/" + order.zone);
  body.set("name", order.name);
  return body;
}

Json gce_bulk_body(const GceOrder& order, const GceSettings& settings) {
  Json names = Json::object();
  for (std::uint32_t rank = 0; rank < order.nodes; ++rank)
    names.set(gce_member_name(order.name, rank), Json::object());
  const std::string count = std::to_string(order.nodes);
  return Json::object({{"count", count},
                       {"minCount", count},
                       {"perInstanceProperties", std::move(names)},
                       {"instanceProperties", gce_properties(order, settings, "")}});
}

std::string gce_bulk_target(const GceOrder& order) {
  return fmt::format("{}{}/zones/{}/instances/bulkInsert?requestId={}", gce_projects, order.project,
                     order.zone, gce_request_id(order));
}

std::string gce_member_name(const std::string& name, std::uint32_t rank) {
  constexpr std::size_t base_max = 58;  // of 63: room for "-n9999"
  std::string base = name;
  if (base.size() > base_max)
    base = base.substr(0, base_max - 9) + "-" + sha256_hex(name).substr(0, 8);
  return fmt::format("{}-n{}", base, rank);
}

std::string gce_member_rank() {
  return "echo ${BILLOW_BOOT_RANK:-$(curl -s -H 'Metadata-Flavor: Google' "
         "http://169.254.169.254/computeMetadata/v1/instance/name | sed 's/.*-n//')}";
}

std::string gce_fabric(const std::string& instance, const GceSettings& settings) {
  if (instance.starts_with("a3-highgpu-8g") && settings.fabric_subnetworks.size() == 4)
    return "tcpx";
  if (instance.starts_with("a3-megagpu-8g") && settings.fabric_subnetworks.size() == 8)
    return "tcpxo";
  return {};
}

bool gce_takes_policy(const std::string& instance) {
  for (const std::string_view family : {"a2-", "a3-", "a4-", "a4x-", "g2-", "g4-"})
    if (instance.starts_with(family))
      return true;
  return false;
}

Json gce_policy_body(const GceOrder& order) {
  return Json::object({{"name", order.policy},
                       {"description", std::string(gce_description_prefix) + order.machine},
                       {"groupPlacementPolicy",
                        Json::object({{"collocation", "COLLOCATED"}, {"vmCount", order.nodes}})}});
}

std::string gce_policies_target(const GceOrder& order) {
  return fmt::format("{}{}/regions/{}/resourcePolicies?requestId={}", gce_projects, order.project,
                     gce_region_of(order.zone), request_uuid("policy\n" + gce_request_id(order)));
}

std::string gce_policy_target(const std::string& project,
                              const std::string& region,
                              const std::string& name) {
  return fmt::format("{}{}/regions/{}/resourcePolicies/{}", gce_projects, project, region, name);
}

std::string gce_policy_list_target(const std::string& project,
                                   const std::string& installation,
                                   const std::string& page) {
  std::vector<std::pair<std::string, std::string>> query = {
      {"filter", fmt::format("name eq \"{}.*\"", resource_prefix(installation))},
      {"maxResults", std::to_string(gce_page_size)},
      {"returnPartialSuccess", "true"}};
  if (!page.empty())
    query.emplace_back("pageToken", page);
  return fmt::format("{}{}/aggregated/resourcePolicies?{}", gce_projects, project, form(query));
}

std::string gce_request_id(const GceOrder& order) {
  return request_uuid(fmt::format("{}\n{}\n{}\n{}\n{}\n{}", order.installation, order.machine,
                                  order.zone, order.instance, order.spot, order.reservation) +
                      (order.nodes > 1 ? fmt::format("\n{}", order.nodes) : ""));
}

std::string gce_insert_target(const GceOrder& order) {
  return fmt::format("{}{}/zones/{}/instances?requestId={}", gce_projects, order.project,
                     order.zone, gce_request_id(order));
}

std::string gce_list_target(const std::string& project,
                            const std::string& installation,
                            const std::string& pool,
                            const std::string& page) {
  std::vector<std::pair<std::string, std::string>> query = {
      {"filter", fmt::format("(labels.billow-installation = \"{}\") AND (labels.billow-pool = "
                             "\"{}\")",
                             label_value(installation), label_value(pool))},
      {"maxResults", std::to_string(gce_page_size)},
      {"returnPartialSuccess", "true"},
      {"fields", std::string(gce_list_fields)}};
  if (!page.empty())
    query.emplace_back("pageToken", page);
  return fmt::format("{}{}/aggregated/instances?{}", gce_projects, project, form(query));
}

std::string gce_instance_target(const std::string& project,
                                const std::string& zone,
                                const std::string& name) {
  return fmt::format("{}{}/zones/{}/instances/{}", gce_projects, project, zone, name);
}

std::string gce_delete_target(const std::string& project,
                              const std::string& zone,
                              const std::string& name,
                              const std::string& request_id) {
  return gce_instance_target(project, zone, name) + "?requestId=" + request_id;
}

std::string gce_operation_target(const std::string& project,
                                 const std::string& zone,
                                 const std::string& operation) {
  return fmt::format("{}{}/zones/{}/operations/{}", gce_projects, project, zone,
                     net::percent_encode(operation));
}

std::string gce_machine_types_target(const std::string& project, const std::string& page) {
  std::vector<std::pair<std::string, std::string>> query = {
      {"filter", std::string(gpu_types_filter)},
      {"maxResults", std::to_string(gce_page_size)},
      {"returnPartialSuccess", "true"}};
  if (!page.empty())
    query.emplace_back("pageToken", page);
  return fmt::format("{}{}/aggregated/machineTypes?{}", gce_projects, project, form(query));
}

std::string gce_project_target(const std::string& project) {
  return std::string(gce_projects) + project;
}

std::string gce_region_target(const std::string& project, const std::string& region) {
  return fmt::format("{}{}/regions/{}", gce_projects, project, region);
}

std::string gce_rights_target(const std::string& project) {
  return fmt::format("/v1/projects/{}:testIamPermissions", project);
}

const std::vector<std::string>& gce_permissions() {
  static const std::vector<std::string> list = {
      "compute.disks.create",
      "compute.disks.setLabels",
      "compute.images.useReadOnly",
      "compute.instances.create",
      "compute.instances.delete",
      "compute.instances.get",
      "compute.instances.list",
      "compute.instances.setLabels",
      "compute.instances.setMetadata",
      "compute.machineTypes.list",
      "compute.projects.get",
      "compute.regions.get",
      "compute.resourcePolicies.create",
      "compute.resourcePolicies.delete",
      "compute.resourcePolicies.get",
      "compute.resourcePolicies.list",
      "compute.resourcePolicies.use",
      "compute.subnetworks.use",
      "compute.subnetworks.useExternalIp",
      "compute.zoneOperations.get",
  };
  return list;
}

Result<GceShape> read_gce_shape(const std::string& instance) {
  const std::size_t plus = instance.find('+');
  if (plus == std::string::npos)
    return GceShape{instance, "", 0};
  const std::size_t by = instance.find('x', plus);
  const auto count =
      by == std::string::npos
          ? Result<std::int64_t>(fail(Code::invalid, ""))
          : parse_int(std::string_view(instance).substr(plus + 1, by - plus - 1), 1, 16);
  if (!count || by + 1 == instance.size())
    return fail(Code::invalid, fmt::format("invalid instance \"{}\"", instance),
                "write attached GPUs like n1-standard-8+1xnvidia-tesla-t4");
  return GceShape{instance.substr(0, plus), instance.substr(by + 1),
                  static_cast<std::int32_t>(*count)};
}

std::string gce_region_of(const std::string& zone) {
  return zone.substr(0, zone.rfind('-'));
}

}  // namespace billow::pool
