#include "pool/azure/azure_request.h"

#include <fmt/format.h>

#include "base/crypto.h"
#include "base/text.h"
#include "pool/oauth/api_client.h"

namespace billow::pool {
namespace {

// As the clients @azure/arm-compute 24, arm-network 36 and arm-resources 7 use them.
constexpr std::string_view compute_version = "api-version=2026-03-01";
constexpr std::string_view skus_version = "api-version=2021-07-01";
constexpr std::string_view network_version = "api-version=2025-05-01";
constexpr std::string_view groups_version = "api-version=2025-04-01";
constexpr std::string_view subscriptions_version = "api-version=2022-12-01";
constexpr std::string_view permissions_version = "api-version=2022-04-01";
constexpr std::string_view inline_network_version = "2022-11-01";
constexpr std::string_view address_space = "10.90.0.0/16";
constexpr std::string_view admin_user = "billow";
constexpr std::size_t computer_name_max = 58;

std::string azure_option(const billow::Pool& pool,
                         const char* name,
                         std::string_view fallback = "") {
  const auto found = pool.options.find(name);
  return found == pool.options.end() || found->second.empty() ? std::string(fallback)
                                                              : found->second;
}

std::vector<std::string> azure_option_list(const billow::Pool& pool, const char* name) {
  std::vector<std::string> out;
  for (const std::string& part : split(azure_option(pool, name), ','))
    if (const std::string_view word = trim(part); !word.empty())
      out.emplace_back(word);
  return out;
}

Json azure_tags(const std::string& installation) {
  return Json::object({{"billow-installation", installation}});
}

Json machine_tags(const AzureOrder& order) {
  return Json::object({{"billow-installation", order.installation},
                       {"billow-pool", order.pool},
                       {"billow-machine", order.machine}});
}

// "publisher:offer:sku:version", or the resource id of an own image.
Result<Json> azure_image(const std::string& text) {
  if (text.starts_with("/subscriptions/"))
    return Json::object({{"id", text}});
  const auto parts = split(text, ':');
  if (parts.size() != 4)
    return fail(Code::invalid, fmt::format("invalid image \"{}\"", text),
                "write PUBLISHER:OFFER:SKU:VERSION or the resource id of an image");
  return Json::object(
      {{"publisher", parts[0]}, {"offer", parts[1]}, {"sku", parts[2]}, {"version", parts[3]}});
}

// Made together with the machine, and deleted with it.
Json network_card(const AzureOrder& order, const AzureSettings& settings) {
  Json address =
      Json::object({{"primary", true}, {"subnet", Json::object({{"id", order.subnet}})}});
  if (settings.public_address)
    address.set(
        "publicIPAddressConfiguration",
        Json::object({{"name", order.name + "-address"},
                      {"sku", Json::object({{"name", "Standard"}})},
                      {"tags", machine_tags(order)},
                      {"properties", Json::object({{"deleteOption", "Delete"},
                                                   {"publicIPAllocationMethod", "Static"}})}}));
  Json properties = Json::object({{"primary", true}, {"deleteOption", "Delete"}});
  if (!order.security_group.empty())
    properties.set("networkSecurityGroup", Json::object({{"id", order.security_group}}));
  properties.set(
      "ipConfigurations",
      json_list(Json::object({{"name", "address"}, {"properties", std::move(address)}})));
  return Json::object({{"name", order.name + "-card"},
                       {"tags", machine_tags(order)},
                       {"properties", std::move(properties)}});
}

// A card of a scale set: it and its address end with their machine, without being told to.
Json set_card(const AzureOrder& order, const AzureSettings& settings) {
  Json address =
      Json::object({{"primary", true}, {"subnet", Json::object({{"id", order.subnet}})}});
  if (settings.public_address)
    address.set("publicIPAddressConfiguration",
                Json::object({{"name", order.name + "-address"},
                              {"sku", Json::object({{"name", "Standard"}})}}));
  Json properties = Json::object({{"primary", true}});
  if (!order.security_group.empty())
    properties.set("networkSecurityGroup", Json::object({{"id", order.security_group}}));
  properties.set(
      "ipConfigurations",
      json_list(Json::object({{"name", "address"}, {"properties", std::move(address)}})));
  return Json::object({{"name", order.name + "-card"}, {"properties", std::move(properties)}});
}

void set_market(Json& properties, const AzureOrder& order) {
  if (!order.spot)
    return;
  // A reclaimed machine is deleted: a deallocated one keeps its disk and its quota. No price
  // limit: it would only add reclaims.
  properties.set("priority", "Spot");
  properties.set("evictionPolicy", "Delete");
  properties.set("billingProfile", Json::object({{"maxPrice", -1}}));
}

Json boot_disk(const AzureOrder& order, const AzureSettings& settings) {
  Json disk = Json::object({{"createOption", "FromImage"},
                            {"diskSizeGB", order.disk_gb > 0 ? order.disk_gb : settings.disk_gb}});
  disk.set("managedDisk", Json::object({{"storageAccountType", settings.disk_kind}}));
  return disk;
}

Json image_of(const AzureOrder& order, const AzureSettings& settings) {
  return azure_image(order.gpus ? settings.image : settings.cpu_image).value_or(Json());
}

Json system_profile(const AzureOrder& order) {
  const Json ssh = Json::object(
      {{"publicKeys",
        json_list(Json::object({{"path", fmt::format("/home/{}/.ssh/authorized_keys", admin_user)},
                                {"keyData", order.ssh_key}}))}});
  // customData, not userData: the metadata service does not show it to jobs.
  return Json::object({{"adminUsername", admin_user},
                       {"customData", base64(order.user_data)},
                       {"linuxConfiguration",
                        Json::object({{"disablePasswordAuthentication", true}, {"ssh", ssh}})}});
}

Json resource_body(const AzureOrder& order, const AzureSettings& settings, Json properties) {
  Json body = Json::object({{"location", order.region}, {"tags", machine_tags(order)}});
  if (!order.zone.empty())
    body.set("zones", json_list(order.zone));
  if (!settings.identity.empty())
    body.set("identity", Json::object({{"type", "UserAssigned"},
                                       {"userAssignedIdentities",
                                        Json::object({{settings.identity, Json::object()}})}}));
  body.set("properties", std::move(properties));
  return body;
}

std::string group_path(const AzureGroup& group) {
  return fmt::format("/subscriptions/{}/resourceGroups/{}", group.subscription, group.name);
}

}  // namespace

Result<AzureSettings> read_azure_settings(const billow::Pool& pool) {
  AzureSettings s;
  s.endpoint = azure_option(pool, "endpoint", "https://management.azure.com");
  s.authority = azure_option(pool, "authority", "https://login.microsoftonline.com");
  for (std::string* url : {&s.endpoint, &s.authority})
    while (url->ends_with('/'))
      url->pop_back();
  BILLOW_TRY_VOID(check_protected("the option endpoint", s.endpoint));
  BILLOW_TRY_VOID(check_protected("the option authority", s.authority));
  s.subscription = azure_option(pool, "subscription");
  s.credentials = azure_option(pool, "credentials");
  s.resource_group = azure_option(pool, "resource_group");
  s.regions = azure_option_list(pool, "regions");
  s.gpu_types = azure_option_list(pool, "gpu_types");
  if (s.regions.empty())
    return fail(Code::invalid, "a pool of kind azure needs the option regions",
                "add --option regions=eastus,westeurope");
  s.image = azure_option(pool, "image", "microsoft-dsvm:ubuntu-hpc:2204:latest");
  s.cpu_image = azure_option(pool, "image", "Canonical:ubuntu-24_04-lts:server:latest");
  BILLOW_TRY(azure_image(s.image));
  s.subnet = azure_option(pool, "subnet");
  s.identity = azure_option(pool, "identity");
  s.disk_kind = azure_option(pool, "disk_kind", "Premium_LRS");
  s.cache_kind = azure_option(pool, "cache_kind", "StandardSSD_LRS");
  const std::string address = azure_option(pool, "public_address", "true");
  if (address != "true" && address != "false")
    return fail(Code::invalid, fmt::format("public_address is \"{}\"", address),
                "use true or false; without one, the subnet needs a NAT gateway");
  s.public_address = address == "true";
  const auto disk = parse_int(azure_option(pool, "disk_gb", "256"), 30, 32767);
  if (!disk)
    return fail(Code::invalid, "disk_gb must be a number between 30 and 32767");
  s.disk_gb = *disk;
  return s;
}

Json azure_machine_body(const AzureOrder& order, const AzureSettings& settings) {
  Json properties = Json::object();
  properties.set("hardwareProfile", Json::object({{"vmSize", order.size}}));
  set_market(properties, order);
  Json disk = boot_disk(order, settings);
  disk.set("name", order.name + "-disk");
  disk.set("deleteOption", "Delete");
  properties.set("storageProfile", Json::object({{"imageReference", image_of(order, settings)},
                                                 {"osDisk", std::move(disk)}}));
  Json system = system_profile(order);
  system.set("computerName", order.name);
  properties.set("osProfile", std::move(system));
  properties.set(
      "networkProfile",
      Json::object({{"networkApiVersion", inline_network_version},
                    {"networkInterfaceConfigurations", json_list(network_card(order, settings))}}));
  return resource_body(order, settings, std::move(properties));
}

Json azure_set_body(const AzureOrder& order, const AzureSettings& settings) {
  Json profile = Json::object();
  set_market(profile, order);
  profile.set("storageProfile", Json::object({{"imageReference", image_of(order, settings)},
                                              {"osDisk", boot_disk(order, settings)}}));
  Json system = system_profile(order);
  // Azure appends six characters of its own.
  system.set("computerNamePrefix", order.name.substr(0, computer_name_max));
  profile.set("osProfile", std::move(system));
  profile.set(
      "networkProfile",
      Json::object({{"networkInterfaceConfigurations", json_list(set_card(order, settings))}}));
  Json properties = Json::object({{"orchestrationMode", "Uniform"},
                                  {"singlePlacementGroup", true},
                                  {"platformFaultDomainCount", 1},
                                  {"overprovision", false},
                                  {"upgradePolicy", Json::object({{"mode", "Manual"}})},
                                  {"virtualMachineProfile", std::move(profile)}});
  Json body = resource_body(order, settings, std::move(properties));
  body.set("sku",
           Json::object({{"name", order.size}, {"tier", "Standard"}, {"capacity", order.nodes}}));
  return body;
}

std::string azure_set_rank() {
  return "echo ${BILLOW_BOOT_RANK:-$(curl -s -H Metadata:true "
         "'http://169.254.169.254/metadata/instance/compute/"
         "name?api-version=2021-02-01&format=text'"
         " | sed 's/.*_//')}";
}

std::string azure_group_target(const AzureGroup& group) {
  // In lower case, as Azure's client writes it here and nowhere else.
  return fmt::format("/subscriptions/{}/resourcegroups/{}?{}", group.subscription, group.name,
                     groups_version);
}

std::string azure_machine_target(const AzureGroup& group, const std::string& name) {
  return fmt::format("{}/providers/Microsoft.Compute/virtualMachines/{}?{}", group_path(group),
                     name, compute_version);
}

std::string azure_machine_view_target(const AzureGroup& group, const std::string& name) {
  return azure_machine_target(group, name) + "&%24expand=instanceView";
}

std::string azure_delete_target(const AzureGroup& group, const std::string& name) {
  return azure_machine_target(group, name) + "&forceDeletion=true";
}

std::string azure_machines_target(const AzureGroup& group) {
  return fmt::format("{}/providers/Microsoft.Compute/virtualMachines?{}", group_path(group),
                     compute_version);
}

std::string azure_set_target(const AzureGroup& group, const std::string& name) {
  return fmt::format("{}/providers/Microsoft.Compute/virtualMachineScaleSets/{}?{}",
                     group_path(group), name, compute_version);
}

std::string azure_sets_target(const AzureGroup& group) {
  return fmt::format("{}/providers/Microsoft.Compute/virtualMachineScaleSets?{}", group_path(group),
                     compute_version);
}

std::string azure_skus_target(const std::string& subscription, const std::string& region) {
  return fmt::format("/subscriptions/{}/providers/Microsoft.Compute/skus?{}&%24filter={}",
                     subscription, skus_version,
                     net::percent_encode(fmt::format("location eq '{}'", region)));
}

std::string azure_usages_target(const std::string& subscription, const std::string& region) {
  return fmt::format("/subscriptions/{}/providers/Microsoft.Compute/locations/{}/usages?{}",
                     subscription, region, compute_version);
}

std::string azure_subscription_target(const std::string& subscription) {
  return fmt::format("/subscriptions/{}?{}", subscription, subscriptions_version);
}

std::string azure_permissions_target(const std::string& subscription) {
  return fmt::format("/subscriptions/{}/providers/Microsoft.Authorization/permissions?{}",
                     subscription, permissions_version);
}

std::string azure_network_target(const AzureGroup& group, const std::string& region) {
  return fmt::format("{}/providers/Microsoft.Network/virtualNetworks/billow-{}?{}",
                     group_path(group), region, network_version);
}

std::string azure_security_target(const AzureGroup& group, const std::string& region) {
  return fmt::format("{}?{}", azure_security_id(group, region), network_version);
}

std::string azure_subnet_id(const AzureGroup& group, const std::string& region) {
  return fmt::format("{}/providers/Microsoft.Network/virtualNetworks/billow-{}/subnets/machines",
                     group_path(group), region);
}

std::string azure_security_id(const AzureGroup& group, const std::string& region) {
  return fmt::format("{}/providers/Microsoft.Network/networkSecurityGroups/billow-{}",
                     group_path(group), region);
}

Json azure_group_body(const std::string& installation, const std::string& region) {
  return Json::object({{"location", region}, {"tags", azure_tags(installation)}});
}

// Without rules of its own, Azure's defaults hold: machines of the network reach each other, nobody
// else reaches them, and they reach everybody.
Json azure_security_body(const std::string& installation, const std::string& region) {
  return Json::object({{"location", region},
                       {"tags", azure_tags(installation)},
                       {"properties", Json::object({{"securityRules", Json::array()}})}});
}

Json azure_network_body(const AzureGroup& group,
                        const std::string& installation,
                        const std::string& region) {
  const Json subnet = Json::object(
      {{"name", "machines"},
       {"properties", Json::object({{"addressPrefix", address_space},
                                    {"networkSecurityGroup",
                                     Json::object({{"id", azure_security_id(group, region)}})}})}});
  return Json::object(
      {{"location", region},
       {"tags", azure_tags(installation)},
       {"properties", Json::object({{"addressSpace",
                                     Json::object({{"addressPrefixes", json_list(address_space)}})},
                                    {"subnets", json_list(subnet)}})}});
}

const std::vector<std::string>& azure_actions() {
  static const std::vector<std::string> list = {
      "Microsoft.Authorization/permissions/read",
      "Microsoft.Compute/disks/write",
      "Microsoft.Compute/disks/delete",
      "Microsoft.Compute/locations/operations/read",
      "Microsoft.Compute/locations/usages/read",
      "Microsoft.Compute/skus/read",
      "Microsoft.Compute/virtualMachineScaleSets/read",
      "Microsoft.Compute/virtualMachineScaleSets/write",
      "Microsoft.Compute/virtualMachineScaleSets/delete",
      "Microsoft.Compute/virtualMachines/read",
      "Microsoft.Compute/virtualMachines/write",
      "Microsoft.Compute/virtualMachines/delete",
      "Microsoft.Network/networkInterfaces/read",
      "Microsoft.Network/networkInterfaces/write",
      "Microsoft.Network/networkInterfaces/delete",
      "Microsoft.Network/networkInterfaces/join/action",
      "Microsoft.Network/networkSecurityGroups/write",
      "Microsoft.Network/networkSecurityGroups/join/action",
      "Microsoft.Network/publicIPAddresses/read",
      "Microsoft.Network/publicIPAddresses/write",
      "Microsoft.Network/publicIPAddresses/delete",
      "Microsoft.Network/publicIPAddresses/join/action",
      "Microsoft.Network/virtualNetworks/read",
      "Microsoft.Network/virtualNetworks/write",
      "Microsoft.Network/virtualNetworks/subnets/join/action",
      "Microsoft.Resources/subscriptions/read",
      "Microsoft.Resources/subscriptions/resourceGroups/read",
      "Microsoft.Resources/subscriptions/resourceGroups/write",
  };
  return list;
}

}  // namespace billow::pool
