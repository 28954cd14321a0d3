// What Compute Engine answers: instances, operations, machine types, and errors as refusals.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "core/model/offer.h"
#include "pool/oauth/api_client.h"

namespace billow::pool {

struct GceInstance {
  std::string machine;  // its name here
  std::string name, zone, status;
  std::string installation, pool;  // as labels
  std::string problem;             // Google's message about its state
  WallTime ends_at;
  // Stopped, by itself or by somebody: it costs money and does no work.
  bool stopped() const;
};
GceInstance read_gce_instance(const Json& json);

// Whether this is a list over all zones or regions. Without any, Google writes no `items`.
bool gce_is_list(const Json& json);

// One page of a list over all zones.
struct GceInstancePage {
  std::vector<GceInstance> instances;
  std::set<std::string> silent_zones;  // that did not answer: their machines are missing above
  std::string next;                    // token of the next page; empty: this is the last
};
GceInstancePage read_gce_page(const Json& json);

// A placement policy, as far as it is one of ours.
struct GcePolicy {
  std::string name, region;
  std::string machine;
  WallTime created;
};
struct GcePolicyPage {
  std::vector<GcePolicy> policies;
  std::set<std::string> silent_regions;
  std::string next;
};
GcePolicyPage read_gce_policies(const Json& json);

struct GceListedDisk {
  std::string name, zone, status, description;
  WallTime created;
  bool in_use = false;
};
struct GceDiskPage {
  std::vector<GceListedDisk> disks;
  std::set<std::string> silent_zones;
  std::string next;
};
GceDiskPage read_gce_disks(const Json& json);

struct GceOperation {
  std::string name;
  bool done = false;
  std::optional<Refusal> refusal;  // why it failed
};
// Capacity and quota errors arrive here, some seconds after the request was accepted.
GceOperation read_gce_operation(const Json& json);

// An error answer to a request.
Refusal gce_refusal(const ApiAnswer& answer);
std::string gce_error_text(const ApiAnswer& answer);
// The first reason in an error answer: "alreadyExists".
std::string_view gce_error_reason(const Json& body);

struct GceMachineType {
  std::string name, zone;
  std::int32_t cpus = 0;
  std::int64_t memory_mib = 0;
};
struct GceTypePage {
  std::vector<GceMachineType> types;
  std::string next;
};
GceTypePage read_gce_types(const Json& json);

}  // namespace billow::pool
