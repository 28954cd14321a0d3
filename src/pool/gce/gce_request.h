// What is sent to Compute Engine: paths, queries and bodies as Google's own clients send them.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "core/model/offer.h"
#include "core/model/pool.h"
#include "pool/pool.h"

namespace billow::pool {

// The options of a pool of kind gce, with their defaults.
struct GceSettings {
  std::string endpoint;     // "https://compute.googleapis.com"
  std::string project;      // empty: the credentials' own
  std::string credentials;  // path; empty: found as Google's clients do
  std::vector<std::string> regions;
  std::vector<std::string> zones;
  std::vector<std::string> gpu_types;  // empty: all
  std::vector<std::string> attached;   // "n1-standard-8+1xnvidia-tesla-t4": GPUs on other machines
  std::string image;
  std::string cpu_image;  // of machines without GPUs
  std::string network;
  std::string subnetwork;
  std::vector<std::string> fabric_subnetworks;  // of further cards, for traffic between GPUs
  std::string service_account;                  // of the machines; empty: none
  bool public_address = true;
  std::int64_t disk_gb = 0;
  Duration run_max;        // Google deletes a machine after this long
  std::string cache_kind;  // type of the cache disks
};
Result<GceSettings> read_gce_settings(const billow::Pool& pool);

// One machine to create.
struct GceOrder {
  std::string project;
  std::string zone;
  std::string name;  // of the instance
  std::string installation, pool, machine;
  std::string instance;  // "a3-highgpu-8g", or "n1-standard-8+1xnvidia-tesla-t4"
  bool spot = false;
  bool gpus = false;
  std::string reservation;
  std::string user_data;
  std::int64_t disk_gb = 0;  // 0: as the pool's machines usually have
  std::uint32_t nodes = 1;
  std::string policy;  // placement policy of a gang; empty: none
};
Json gce_insert_body(const GceOrder& order, const GceSettings& settings);

// All nodes of a gang in one request, which Google carries out whole or not at all. Their names end
// in their rank.
Json gce_bulk_body(const GceOrder& order, const GceSettings& settings);
std::string gce_bulk_target(const GceOrder& order);
std::string gce_member_name(const std::string& name, std::uint32_t rank);
// Shell words that print the rank of a member.
std::string gce_member_rank();

// A policy that places the machines of a gang close together. It costs nothing and is deleted with
// them. Some machine types take none.
// The network between GPUs that machines of this type have on further cards: "tcpx", "tcpxo".
std::string gce_fabric(const std::string& instance, const GceSettings& settings);

bool gce_takes_policy(const std::string& instance);
Json gce_policy_body(const GceOrder& order);
std::string gce_policies_target(const GceOrder& order);
std::string gce_policy_target(const std::string& project,
                              const std::string& region,
                              const std::string& name);
std::string gce_policy_list_target(const std::string& project,
                                   const std::string& installation,
                                   const std::string& page);

// A disk that keeps the caches of machines.
struct GceDisk {
  std::string project, zone;
  std::string name;  // of the disk
  std::string installation, pool, disk;
  std::int64_t gb = 0;
  std::string request_id;
};
Json gce_disk_body(const GceDisk& disk, const GceSettings& settings);
std::string gce_disks_target(const GceDisk& disk);
std::string gce_disk_target(const std::string& project,
                            const std::string& zone,
                            const std::string& name,
                            const std::string& request_id);
std::string gce_disk_list_target(const std::string& project,
                                 const std::string& installation,
                                 const std::string& pool,
                                 const std::string& page);
// The machine sees the disk as /dev/disk/by-id/google-billow-cache.
std::string gce_attach_target(const GceDisk& disk, const std::string& instance);
Json gce_attach_body(const GceDisk& disk);
inline constexpr std::string_view gce_cache_device = "billow-cache";

// Depends on the order alone, so that a repeated request creates nothing new.
std::string gce_request_id(const GceOrder& order);

std::string gce_insert_target(const GceOrder& order);
std::string gce_list_target(const std::string& project,
                            const std::string& installation,
                            const std::string& pool,
                            const std::string& page);
std::string gce_instance_target(const std::string& project,
                                const std::string& zone,
                                const std::string& name);
std::string gce_delete_target(const std::string& project,
                              const std::string& zone,
                              const std::string& name,
                              const std::string& request_id);
std::string gce_operation_target(const std::string& project,
                                 const std::string& zone,
                                 const std::string& operation);
std::string gce_machine_types_target(const std::string& project, const std::string& page);
std::string gce_project_target(const std::string& project);
// Of the Resource Manager API, which tells which rights of a list the caller has.
std::string gce_rights_target(const std::string& project);
std::string gce_region_target(const std::string& project, const std::string& region);

// The rights that the calls above need (packaging/clouds/gce-role.yaml has the same).
const std::vector<std::string>& gce_permissions();
// Further ones, for cache disks.
const std::vector<std::string>& gce_cache_permissions();

// "us-central1-a" → "us-central1"
std::string gce_region_of(const std::string& zone);

// "n1-standard-8+2xnvidia-tesla-t4": GPUs that are attached to an ordinary machine.
struct GceShape {
  std::string machine_type;
  std::string accelerator;
  std::int32_t accelerators = 0;
};
Result<GceShape> read_gce_shape(const std::string& instance);

// The machine's own name stands in the description, because a label cannot hold every name.
inline constexpr std::string_view gce_description_prefix = "billow machine ";

}  // namespace billow::pool
