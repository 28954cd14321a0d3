#include "pool/gce/gce_answer.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/formats/utc.h"
#include "base/text.h"
#include "pool/gce/gce_request.h"

namespace billow::pool {
namespace {

// "https://…/zones/us-central1-a" or "zones/us-central1-a" → "us-central1-a"
std::string gce_last_part(std::string_view url) {
  const std::size_t slash = url.rfind('/');
  return std::string(slash == std::string_view::npos ? url : url.substr(slash + 1));
}

bool gce_has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// The place, or this account in this place, does not have the thing that the message names.
bool gce_place_is_missing(std::string_view message) {
  const bool missing = gce_has(message, "not found") || gce_has(message, "does not exist") ||
                       gce_has(message, "not available") || gce_has(message, "unauthorized");
  return missing && (gce_has(message, "machineTypes/") || gce_has(message, "acceleratorTypes/") ||
                     gce_has(message, "/zones/") || gce_has(message, "Machine type") ||
                     gce_has(message, "Location"));
}

// Codes with the same meaning in error answers and in failed operations.
std::optional<RefusalKind> gce_known_kind(std::string_view code, std::string_view message) {
  const std::string name = lower(code);
  if (gce_has(name, "resource_pool_exhausted") || name == "insufficientcapacity" ||
      name == "vm_min_count_not_reached" || name == "stockout")
    return RefusalKind::capacity;
  // A spot machine that was reclaimed while it was being created.
  if (name == "unsupported_operation" && gce_has(message, "preempted"))
    return RefusalKind::capacity;
  if (name == "quota_exceeded" || name == "quotaexceeded" || name == "limitexceeded" ||
      name == "ip_space_exhausted" || name == "ip_space_exhausted_with_details")
    return RefusalKind::quota;
  if (name == "permissions_error" || name == "condition_not_met")
    return RefusalKind::settings;
  if (gce_place_is_missing(message))
    return RefusalKind::not_offered;
  return std::nullopt;
}

std::string gce_text(std::string_view code, std::string_view message) {
  return std::string(
      utf8_prefix(code.empty() ? std::string(message) : fmt::format("{}: {}", code, message), 500));
}

}  // namespace

bool GceInstance::stopped() const {
  return status == "TERMINATED" || status == "STOPPED" || status == "SUSPENDED";
}

GceInstance read_gce_instance(const Json& json) {
  GceInstance out;
  out.name = json["name"].str_or("");
  out.zone = gce_last_part(json["zone"].str_or(""));
  out.status = json["status"].str_or("");
  out.problem = json["statusMessage"].str_or("");
  out.installation = json.at("labels", "billow-installation").str_or("");
  out.pool = json.at("labels", "billow-pool").str_or("");
  const std::string_view description = json["description"].str_or("");
  if (description.starts_with(gce_description_prefix))
    out.machine = description.substr(gce_description_prefix.size());
  const WallTime created = utc_or_zero(json["creationTimestamp"].str_or(""));
  const std::int64_t run_max_s = number_of(json.at("scheduling", "maxRunDuration", "seconds"), 0);
  if (created && run_max_s > 0 && run_max_s < 366 * 24 * 3600)
    out.ends_at = created + seconds(run_max_s);
  return out;
}

bool gce_is_list(const Json& json) {
  return json.is_object() && (json["items"].is_null() || json["items"].is_object()) &&
         (json["unreachables"].is_null() || json["unreachables"].is_array()) &&
         json["error"].is_null();
}

GceInstancePage read_gce_page(const Json& json) {
  GceInstancePage page;
  for (const auto& [scope, content] : json["items"].members()) {
    for (const Json& instance : content["instances"].items()) {
      page.instances.push_back(read_gce_instance(instance));
      if (page.instances.back().zone.empty())
        page.instances.back().zone = gce_last_part(scope);
    }
    const std::string_view warning = content.at("warning", "code").str_or("");
    if (!warning.empty() && warning != "NO_RESULTS_ON_PAGE")
      page.silent_zones.insert(gce_last_part(scope));
  }
  for (const Json& zone : json["unreachables"].items())
    page.silent_zones.insert(gce_last_part(zone.str_or("")));
  page.next = json["nextPageToken"].str_or("");
  return page;
}

GcePolicyPage read_gce_policies(const Json& json) {
  GcePolicyPage page;
  for (const auto& [scope, content] : json["items"].members()) {
    for (const Json& policy : content["resourcePolicies"].items()) {
      const std::string_view description = policy["description"].str_or("");
      if (description.starts_with(gce_description_prefix))
        page.policies.push_back(
            {.name = std::string(policy["name"].str_or("")),
             .region = gce_last_part(scope),
             .machine = std::string(description.substr(gce_description_prefix.size())),
             .created = utc_or_zero(policy["creationTimestamp"].str_or(""))});
    }
    const std::string_view warning = content.at("warning", "code").str_or("");
    if (!warning.empty() && warning != "NO_RESULTS_ON_PAGE")
      page.silent_regions.insert(gce_last_part(scope));
  }
  for (const Json& region : json["unreachables"].items())
    page.silent_regions.insert(gce_last_part(region.str_or("")));
  page.next = json["nextPageToken"].str_or("");
  return page;
}

GceDiskPage read_gce_disks(const Json& json) {
  GceDiskPage page;
  for (const auto& [scope, content] : json["items"].members()) {
    for (const Json& disk : content["disks"].items())
      page.disks.push_back({.name = std::string(disk["name"].str_or("")),
                            .zone = gce_last_part(scope),
                            .status = std::string(disk["status"].str_or("")),
                            .description = std::string(disk["description"].str_or("")),
                            .created = utc_or_zero(disk["creationTimestamp"].str_or("")),
                            .in_use = !disk["users"].items().empty()});
    const std::string_view warning = content.at("warning", "code").str_or("");
    if (!warning.empty() && warning != "NO_RESULTS_ON_PAGE")
      page.silent_zones.insert(gce_last_part(scope));
  }
  for (const Json& zone : json["unreachables"].items())
    page.silent_zones.insert(gce_last_part(zone.str_or("")));
  page.next = json["nextPageToken"].str_or("");
  return page;
}

GceOperation read_gce_operation(const Json& json) {
  GceOperation out;
  out.name = json["name"].str_or("");
  out.done = json["status"].str_or("") == "DONE";
  const Json::Array& errors = json.at("error", "errors").items();
  if (errors.empty())
    return out;
  // The errors of one operation can mix a general one with the reason: the known one counts.
  const Json* reason = &errors.front();
  std::optional<RefusalKind> kind;
  for (const Json& error : errors) {
    kind = gce_known_kind(error["code"].str_or(""), error["message"].str_or(""));
    if (kind) {
      reason = &error;
      break;
    }
  }
  // Final, whatever it was: the same request would only return this operation again.
  out.refusal = Refusal{kind.value_or(RefusalKind::capacity),
                        gce_text((*reason)["code"].str_or(""), (*reason)["message"].str_or(""))};
  return out;
}

std::string_view gce_error_reason(const Json& body) {
  const Json::Array& errors = body.at("error", "errors").items();
  return errors.empty() ? std::string_view{} : errors.front()["reason"].str_or("");
}

std::string gce_error_text(const ApiAnswer& answer) {
  const std::string_view message = answer.body.at("error", "message").str_or(answer.text);
  return fmt::format("HTTP {} {}", answer.status, gce_text(gce_error_reason(answer.body), message));
}

Refusal gce_refusal(const ApiAnswer& answer) {
  const std::string_view reason = gce_error_reason(answer.body);
  const std::string_view message = answer.body.at("error", "message").str_or("");
  const std::string name = lower(reason);
  RefusalKind kind = RefusalKind::settings;
  if (name == "ratelimitexceeded" || name == "userratelimitexceeded" ||
      name == "resource_operation_rate_exceeded" || name == "resourcenotready")
    kind = RefusalKind::no_answer;
  else if (const auto known = gce_known_kind(reason, message))
    kind = *known;
  else if (answer.status >= 500 || answer.status == 429 || answer.status == 408)
    kind = RefusalKind::no_answer;
  return {kind, gce_error_text(answer)};
}

GceTypePage read_gce_types(const Json& json) {
  GceTypePage page;
  for (const auto& [scope, content] : json["items"].members())
    for (const Json& type : content["machineTypes"].items())
      page.types.push_back({.name = std::string(type["name"].str_or("")),
                            .zone = gce_last_part(scope),
                            .cpus = static_cast<std::int32_t>(
                                std::clamp<std::int64_t>(type["guestCpus"].int_or(0), 0, 1 << 20)),
                            .memory_mib = std::max<std::int64_t>(type["memoryMb"].int_or(0), 0)});
  page.next = json["nextPageToken"].str_or("");
  return page;
}

}  // namespace billow::pool
