// What is sent to Azure Resource Manager: paths and bodies as Azure's own clients send them.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "core/model/pool.h"

namespace billow::pool {

// The options of a pool of kind azure, with their defaults.
struct AzureSettings {
  std::string endpoint;   // "https://management.azure.com"
  std::string authority;  // "https://login.microsoftonline.com"
  std::string subscription;
  std::string credentials;
  std::string resource_group;  // empty: billow-INSTALLATION
  std::vector<std::string> regions;
  std::vector<std::string> gpu_types;  // empty: all
  std::string image, cpu_image;
  std::string subnet;  // its resource id; empty: one network for each region is made
  std::string identity;
  std::string disk_kind, cache_kind;
  bool public_address = true;
  std::int64_t disk_gb = 0;
};
Result<AzureSettings> read_azure_settings(const billow::Pool& pool);

// One machine to create.
struct AzureOrder {
  std::string subscription, group;
  std::string name;  // of the virtual machine
  std::string region;
  std::string zone;  // "1"; empty: Azure chooses
  std::string installation, pool, machine;
  std::string size;  // "Standard_ND96isr_H100_v5"
  bool spot = false;
  bool gpus = false;
  std::string subnet;          // resource id
  std::string security_group;  // resource id; empty: that of the subnet
  std::string ssh_key;         // Azure wants one; nobody has its private half
  std::string user_data;
  std::int64_t disk_gb = 0;  // 0: as the pool's machines usually have
  std::uint32_t nodes = 1;
};
Json azure_machine_body(const AzureOrder& order, const AzureSettings& settings);

// The nodes of a gang: one scale set in a single placement group, because InfiniBand connects only
// machines of one set. It is created and deleted as a whole.
Json azure_set_body(const AzureOrder& order, const AzureSettings& settings);
// Shell words that print the rank of a machine of a set.
std::string azure_set_rank();

// A resource group and what is in it.
struct AzureGroup {
  std::string subscription, name;
};
// A managed disk that keeps the caches of machines.
struct AzureDisk {
  std::string region, zone;  // "eastus", "1"; without a zone Azure chooses
  std::string installation, pool, disk;
  std::int64_t gb = 0;
};
Json azure_disk_body(const AzureDisk& disk, const AzureSettings& settings);
std::string azure_disk_target(const AzureGroup& group, const std::string& name);
std::string azure_disks_target(const AzureGroup& group);
std::string azure_attach_target(const AzureGroup& group, const std::string& machine);
Json azure_attach_body(const AzureGroup& group, const std::string& disk);
inline constexpr int azure_cache_lun = 10;
std::string azure_group_target(const AzureGroup& group);
std::string azure_machine_target(const AzureGroup& group, const std::string& name);
std::string azure_machine_view_target(const AzureGroup& group, const std::string& name);
std::string azure_delete_target(const AzureGroup& group, const std::string& name);
std::string azure_machines_target(const AzureGroup& group);
std::string azure_set_target(const AzureGroup& group, const std::string& name);
std::string azure_sets_target(const AzureGroup& group);
std::string azure_skus_target(const std::string& subscription, const std::string& region);
std::string azure_usages_target(const std::string& subscription, const std::string& region);
std::string azure_subscription_target(const std::string& subscription);
std::string azure_permissions_target(const std::string& subscription);

// The network that all machines of a region share. It allows no connections from outside.
std::string azure_network_target(const AzureGroup& group, const std::string& region);
std::string azure_security_target(const AzureGroup& group, const std::string& region);
std::string azure_subnet_id(const AzureGroup& group, const std::string& region);
std::string azure_security_id(const AzureGroup& group, const std::string& region);
Json azure_group_body(const std::string& installation, const std::string& region);
Json azure_security_body(const std::string& installation, const std::string& region);
Json azure_network_body(const AzureGroup& group,
                        const std::string& installation,
                        const std::string& region);

// The rights that the calls above need (packaging/clouds/azure-role.json has the same).
const std::vector<std::string>& azure_actions();
// Further ones, for cache disks.
const std::vector<std::string>& azure_cache_actions();

}  // namespace billow::pool
