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
  Json disk = Json::object({{"name", order.name + "-disk"},
                            {"createOption", "FromImage"},
                            {"deleteOption", "Delete"},
                            {"diskSizeGB", settings.disk_gb}});
  disk.set("managedDisk", Json::object({{"storageAccountType", settings.disk_kind}}));
  Json properties = Json::object();
  properties.set("hardwareProfile", Json::object({{"vmSize", order.size}}));
  if (order.spot) {
    // A reclaimed machine is deleted: a deallocated one keeps its disk and its quota. No price
    // limit: it would only add reclaims.
    properties.set("priority", "Spot");
    properties.set("evictionPolicy", "Delete");
    properties.set("billingProfile", Json::object({{"maxPrice", -1}}));
  }
  properties.set(
      "storageProfile",
      Json::object(
          {{"imageReference",
            azure_image(order.gpus ? settings.image : settings.cpu_image).value_or(Json())},
           {"osDisk", std::move(disk)}}));
  const Json ssh = Json::object(
      {{"publicKeys",
        json_list(Json::object({{"path", fmt::format("/home/{}/.ssh/authorized_keys", admin_user)},
                                {"keyData", order.ssh_key}}))}});
  // customData, not userData: the metadata service does not show it to jobs.
  properties.set(
      "osProfile",
      Json::object({{"computerName", order.name},
                    {"adminUsername", admin_user},
                    {"customData", base64(order.user_data)},
                    {"linuxConfiguration",
                     Json::object({{"disablePasswordAuthentication", true}, {"ssh", ssh}})}}));
  properties.set(
      "networkProfile",
      Json::object({{"networkApiVersion", inline_network_version},
                    {"networkInterfaceConfigurations", json_list(network_card(order, settings))}}));
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
