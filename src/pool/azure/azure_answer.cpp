#include "pool/azure/azure_answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/glob.h"
#include "base/text.h"

namespace billow::pool {
namespace {

constexpr std::string_view failed_status = "ProvisioningState/failed";

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::ranges::find(words, word) != words.end();
}

bool azure_has(std::string_view text, std::string_view part) {
  return lower(text).find(part) != std::string::npos;
}

// Codes with the same meaning in error answers, failed operations and failed machines.
std::optional<RefusalKind> azure_known_kind(std::string_view code,
                                            std::string_view message,
                                            bool spot) {
  if (is_one_of(code, {"AllocationFailed", "ZonalAllocationFailed",
                       "OverconstrainedAllocationRequest", "OverconstrainedZonalAllocationRequest",
                       "SpotEvicted", "CapacityReservationFull"}))
    return RefusalKind::capacity;
  // With spot it means that nothing is free; otherwise that this subscription cannot have it.
  if (code == "SkuNotAvailable")
    return spot ? RefusalKind::capacity : RefusalKind::not_offered;
  if (is_one_of(code, {"NotAvailableForSubscription", "NoRegisteredProviderFound",
                       "LocationNotAvailableForResourceType", "AvailabilityZoneNotSupported",
                       "InvalidAvailabilityZone", "VMSizeIsNotPermittedToEnableAvailabilityZone"}))
    return RefusalKind::not_offered;
  if (code == "QuotaExceeded")
    return RefusalKind::quota;
  // The code has several meanings; the message names the quota.
  if (code == "OperationNotAllowed")
    return azure_has(message, "quota") || azure_has(message, "cores") ? RefusalKind::quota
                                                                      : RefusalKind::settings;
  if (is_one_of(code,
                {"SpotPriceGreaterThanProvidedMaxPrice", "AzureSpotIsNotSupportedForThisVMSize",
                 "AzureSpotFeatureNotEnabledForSubscription", "ReadOnlyDisabledSubscription",
                 "VMStoppedToWarnSubscription", "AuthorizationFailed", "InvalidAuthenticationToken",
                 "InvalidAuthenticationTokenTenant", "RequestDisallowedByPolicy"}))
    return RefusalKind::settings;
  return std::nullopt;
}

struct Found {
  std::string code, message;
  std::optional<RefusalKind> kind;
};

// The reason is often in `details`, under a general code.
Found find_reason(const Json& error, bool spot, int depth = 0) {
  Found found{std::string(error["code"].str_or("")), std::string(error["message"].str_or("")), {}};
  found.kind = azure_known_kind(found.code, found.message, spot);
  if (found.kind || depth > 4)
    return found;
  for (const Json& detail : error["details"].items())
    if (Found inner = find_reason(detail, spot, depth + 1); inner.kind)
      return inner;
  return found;
}

std::string azure_text(std::string_view code, std::string_view message) {
  const std::string_view line = message.substr(0, message.find_first_of("\r\n"));
  return std::string(
      utf8_prefix(code.empty() ? std::string(line) : fmt::format("{}: {}", code, line), 500));
}

std::string_view capability(const Json& sku, std::string_view name) {
  for (const Json& one : sku["capabilities"].items())
    if (one["name"].str_or("") == name)
      return one["value"].str_or("");
  return "";
}

// What this subscription may not use: whole regions, or zones of them.
struct Restrictions {
  bool region = false;
  std::set<std::string> zones;
};
Restrictions restrictions_of(const Json& sku) {
  Restrictions out;
  for (const Json& one : sku["restrictions"].items()) {
    if (one["type"].str_or("") == "Location")
      out.region = true;
    for (const Json& zone : one.at("restrictionInfo", "zones").items())
      out.zones.emplace(zone.str_or(""));
  }
  return out;
}

std::optional<AzureSize> read_size(const Json& sku, const std::string& region) {
  if (sku["resourceType"].str_or("") != "virtualMachines")
    return std::nullopt;
  const Restrictions restricted = restrictions_of(sku);
  const auto gpus = parse_int(capability(sku, "GPUs"), 1, 64);
  if (restricted.region || !gpus)
    return std::nullopt;
  AzureSize out;
  out.name = sku["name"].str_or("");
  out.gpus = static_cast<std::int32_t>(*gpus);
  out.cpus = static_cast<std::int32_t>(parse_int(capability(sku, "vCPUs"), 0, 1 << 20).value_or(0));
  out.memory_mib = static_cast<std::int64_t>(
      parse_double(capability(sku, "MemoryGB"), 0, 1 << 24).value_or(0) * 1024);
  out.spot = capability(sku, "LowPriorityCapable") == "True";
  out.infiniband = capability(sku, "RdmaEnabled") == "True";
  for (const Json& place : sku["locationInfo"].items()) {
    if (lower(place["location"].str_or("")) != lower(region))
      continue;
    for (const Json& zone : place["zones"].items())
      if (const std::string name(zone.str_or("")); !restricted.zones.contains(name))
        out.zones.push_back(name);
    out.regional = place["zones"].items().empty();
  }
  std::ranges::sort(out.zones);
  return out;
}

}  // namespace

AzureMachine read_azure_machine(const Json& json) {
  AzureMachine out;
  out.name = json["name"].str_or("");
  out.machine = json.at("tags", "billow-machine").str_or("");
  out.installation = json.at("tags", "billow-installation").str_or("");
  out.pool = json.at("tags", "billow-pool").str_or("");
  out.state = json.at("properties", "provisioningState").str_or("");
  return out;
}

AzureMachinePage read_azure_page(const Json& json) {
  AzureMachinePage page;
  for (const Json& machine : json["value"].items())
    page.machines.push_back(read_azure_machine(machine));
  page.next = json["nextLink"].str_or("");
  return page;
}

AzureOperation read_azure_operation(const Json& json, bool spot) {
  AzureOperation out;
  const std::string_view status = json["status"].str_or("");
  out.done = is_one_of(status, {"Succeeded", "Failed", "Canceled"});
  if (out.done && status != "Succeeded") {
    const Found reason = find_reason(json["error"], spot);
    out.refusal = Refusal{reason.kind.value_or(RefusalKind::capacity),
                          reason.code.empty() ? fmt::format("the operation ended as {}", status)
                                              : azure_text(reason.code, reason.message)};
  }
  return out;
}

std::optional<Refusal> read_azure_failure(const Json& machine_with_view) {
  const Json& properties = machine_with_view["properties"];
  const bool spot = properties["priority"].str_or("") == "Spot";
  Refusal refusal{RefusalKind::capacity, "the machine failed"};
  for (const Json& status : properties.at("instanceView", "statuses").items()) {
    const std::string_view code = status["code"].str_or("");
    if (code == "PowerState/running")
      return std::nullopt;
    if (!code.starts_with(failed_status))
      continue;
    const std::string_view reason =
        code.size() > failed_status.size() + 1 ? code.substr(failed_status.size() + 1) : "";
    const std::string_view message = status["message"].str_or("");
    refusal.kind = azure_known_kind(reason, message, spot).value_or(RefusalKind::capacity);
    refusal.message = azure_text(reason, message);
  }
  return refusal;
}

std::string_view azure_error_code(const Json& body) {
  return body.at("error", "code").str_or("");
}

std::string azure_error_text(const ApiAnswer& answer) {
  const std::string_view message = answer.body.at("error", "message").str_or(answer.text);
  return fmt::format("HTTP {} {}", answer.status,
                     azure_text(azure_error_code(answer.body), message));
}

Refusal azure_refusal(const ApiAnswer& answer, bool spot) {
  const Found reason = find_reason(answer.body["error"], spot);
  RefusalKind kind = RefusalKind::settings;
  if (reason.kind)
    kind = *reason.kind;
  else if (answer.status >= 500 || answer.status == 429 || answer.status == 408 ||
           is_one_of(reason.code, {"AnotherOperationInProgress", "OperationPreempted",
                                   "RetryableError", "RetryableErrorDueToAnotherOperation",
                                   "ResourceGroupBeingDeleted", "Conflict"}))
    kind = RefusalKind::no_answer;
  return {kind, reason.kind ? fmt::format("HTTP {} {}", answer.status,
                                          azure_text(reason.code, reason.message))
                            : azure_error_text(answer)};
}

AzureSizePage read_azure_sizes(const Json& json, const std::string& region) {
  AzureSizePage page;
  for (const Json& sku : json["value"].items())
    if (auto size = read_size(sku, region))
      page.sizes.push_back(std::move(*size));
  page.next = json["nextLink"].str_or("");
  return page;
}

bool azure_action_granted(const Json& permissions, const std::string& action) {
  const std::string wanted = lower(action);
  const auto covers = [&](const Json& patterns) {
    return std::ranges::any_of(patterns.items(), [&](const Json& pattern) {
      return star_matches(lower(pattern.str_or("")), wanted);
    });
  };
  return std::ranges::any_of(permissions["value"].items(), [&](const Json& role) {
    return covers(role["actions"]) && !covers(role["notActions"]);
  });
}

}  // namespace billow::pool
