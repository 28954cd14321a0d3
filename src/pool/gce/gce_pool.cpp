#include "pool/gce/gce_pool.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/crypto.h"
#include "base/text.h"
#include "pool/boot.h"
#include "pool/catalogue_offers.h"
#include "pool/gce/gce_login.h"
#include "pool/kinds.h"
#include "pool/resource_name.h"

namespace billow::pool {
namespace {

constexpr std::string_view gce_api_name = "Google Compute Engine";
constexpr std::string_view gce_public_endpoint = "https://compute.googleapis.com";
constexpr std::string_view resource_manager = "https://cloudresourcemanager.googleapis.com";
constexpr std::size_t gce_pages_max = 200;
constexpr std::size_t operations_per_look = 20;  // of machines that are missing in the list

std::string gce_endpoint_of(const Result<GceSettings>& settings) {
  return settings ? settings->endpoint : std::string(gce_public_endpoint);
}

// Another endpoint serves all of Google's APIs that are used here.
std::string gce_rights_endpoint_of(const Result<GceSettings>& settings) {
  const std::string endpoint = gce_endpoint_of(settings);
  return endpoint == gce_public_endpoint ? std::string(resource_manager) : endpoint;
}

// "us-central1-a/billow-ab12cd34-fast-7"; of a gang all names, and that of its placement policy
// after "policy:". The place of a policy alone is its region.
constexpr std::string_view policy_mark = "policy:";
struct GceExternal {
  std::string place;
  std::vector<std::string> names;
};
std::optional<GceExternal> read_gce_external(const std::string& text) {
  const std::size_t slash = text.find('/');
  if (slash == std::string::npos || slash == 0 || slash + 1 == text.size())
    return std::nullopt;
  return GceExternal{text.substr(0, slash), split(std::string_view(text).substr(slash + 1), ',')};
}
// Zones end in a letter, regions in a digit.
std::string gce_region_of_place(const std::string& place) {
  return place.back() >= '0' && place.back() <= '9' ? place : gce_region_of(place);
}
std::size_t members_of(const std::string& external) {
  const auto read = read_gce_external(external);
  return !read ? 0
               : static_cast<std::size_t>(std::ranges::count_if(
                     read->names,
                     [](const std::string& name) { return !name.starts_with(policy_mark); }));
}
std::string gce_external_of(const GceOrder& order) {
  if (order.nodes == 1)
    return order.zone + "/" + order.name;
  std::vector<std::string> names;
  for (std::uint32_t rank = 0; rank < order.nodes; ++rank)
    names.push_back(gce_member_name(order.name, rank));
  if (!order.policy.empty())
    names.push_back(std::string(policy_mark) + order.policy);
  return order.zone + "/" + join(names, ",");
}

std::unexpected<Error> gce_failed(std::string_view what, const ApiAnswer& answer) {
  const bool later = answer.status >= 500 || answer.status == 429 || answer.status == 408 ||
                     gce_refusal(answer).kind == RefusalKind::no_answer;
  return fail(later                  ? Code::unavailable
              : answer.status == 401 ? Code::unauthorized
              : answer.status == 403 ? Code::forbidden
              : answer.status == 404 ? Code::not_found
                                     : Code::invalid,
              fmt::format("{}: {}: {}", gce_api_name, what, gce_error_text(answer)));
}

}  // namespace

GcePool::GcePool(billow::Pool settings, Options options, const Clock& clock)
    : pool_(std::move(settings)),
      options_(std::move(options)),
      clock_(clock),
      settings_(read_gce_settings(pool_)),
      logins_(
          [this] {
            return gce_login({settings_ ? settings_->credentials : "", options_.credential}, web_,
                             clock_);
          },
          clock_),
      api_(std::string(gce_api_name), gce_endpoint_of(settings_), web_, logins_, clock_),
      rights_api_(
          "Google Resource Manager", gce_rights_endpoint_of(settings_), web_, logins_, clock_),
      pending_(clock_) {}

Result<std::string> GcePool::project() {
  if (!settings_)
    return pass(settings_.error());
  if (!settings_->project.empty())
    return settings_->project;
  const Login login = BILLOW_TRY(logins_.get());
  if (login.account.empty())
    return fail(Code::invalid, fmt::format("{} names no project", login.source),
                "add the option project to the pool");
  return login.account;
}

Result<GceOrder> GcePool::describe(const Order& order) {
  GceOrder out;
  out.project = BILLOW_TRY(project());
  out.installation = options_.installation;
  out.pool = pool_.name;
  out.machine = order.machine.name;
  out.name = resource_name(options_.installation, order.machine.name);
  const auto& offer = order.machine.offer;
  if (!offer || offer->zone.empty())
    return fail(Code::internal, fmt::format("{} was ordered without a zone", order.machine.name));
  out.instance = offer->instance;
  out.zone = offer->zone;
  out.spot = offer->spot;
  out.gpus = offer->gpus > 0;
  out.reservation = offer->reservation;
  out.nodes = order.machine.nodes;
  if (out.nodes > 1 && gce_takes_policy(out.instance) && out.reservation.empty())
    out.policy = out.name;
  out.user_data =
      boot_script(order, pool_,
                  {.rank = gce_member_rank(),
                   .end = {},
                   .cache_disks = fmt::format("/dev/disk/by-id/google-{}", gce_cache_device)});
  out.disk_gb = boot_disk_gib(order.machine, settings_->disk_gb);
  return out;
}

Ordered GcePool::want(const Order& order) {
  if (order.machine.is_disk())
    return want_disk(order.machine);
  const auto described = describe(order);
  if (!described)
    return std::unexpected(refusal_of_error(described.error()));
  // Repeated because no list has shown it yet: its operation says what became of it.
  if (const auto pending = pending_.find(order.machine.name);
      pending && pending->place == described->zone) {
    const auto known = operation(pending->place, pending->operation);
    if (known && known->refusal) {
      pending_.settled(order.machine.name);
      return std::unexpected(*known->refusal);
    }
    if (known && !known->done)
      return {};
  }
  return insert(*described);
}

Ordered GcePool::insert(const GceOrder& order) {
  const bool gang = order.nodes > 1;
  if (gang)
    ++gang_orders_;
  if (!order.policy.empty())
    if (const Ordered ready = make_policy(order); !ready)
      return ready;
  const Ordered made = send(order);
  // Nobody else uses it. If this fails, the list has it.
  if (!made && made.error().kind != RefusalKind::no_answer && !order.policy.empty()) {
    ending_.lock()->insert(order.machine);
    (void)drop_policy(gce_region_of(order.zone), order.policy);
  }
  return made;
}

Ordered GcePool::send(const GceOrder& order) {
  const bool gang = order.nodes > 1;
  const auto answer = api_.call(
      {.method = net::Method::post,
       .target = gang ? gce_bulk_target(order) : gce_insert_target(order),
       .body = gang ? gce_bulk_body(order, *settings_) : gce_insert_body(order, *settings_)});
  if (!answer)
    return std::unexpected(refusal_of_error(answer.error()));
  if (answer->status == 409 && gce_error_reason(answer->body) == "alreadyExists")
    return already_there(order);
  if (!answer->ok())
    return std::unexpected(gce_refusal(*answer));
  const GceOperation operation = read_gce_operation(answer->body);
  if (operation.refusal) {
    pending_.settled(order.machine);
    return std::unexpected(*operation.refusal);
  }
  if (operation.name.empty())
    return std::unexpected(
        Refusal{RefusalKind::no_answer,
                fmt::format("{} gave an answer without an operation", gce_api_name)});
  pending_.accepted({.machine = order.machine,
                     .external = gce_external_of(order),
                     .place = order.zone,
                     .operation = operation.name,
                     .since = {}});
  return {};
}

// An instance of this name exists: an earlier answer was lost, or it belongs to somebody else.
Ordered GcePool::already_there(const GceOrder& order) {
  const std::string name = order.nodes > 1 ? gce_member_name(order.name, 0) : order.name;
  const auto answer = api_.call({.target = gce_instance_target(order.project, order.zone, name)});
  if (!answer)
    return std::unexpected(refusal_of_error(answer.error()));
  if (!answer->ok())
    return std::unexpected(Refusal{RefusalKind::no_answer, gce_error_text(*answer)});
  const GceInstance instance = read_gce_instance(answer->body);
  if (instance.installation == label_value(order.installation) && instance.machine == order.machine)
    return {};
  return std::unexpected(
      Refusal{RefusalKind::settings,
              fmt::format("an instance named {} exists in {} and is not ours", name, order.zone)});
}

// Whether machines of this pool can be in this zone.
bool GcePool::counts(const std::string& zone) const {
  const auto has = [](const std::vector<std::string>& list, const std::string& name) {
    return std::ranges::find(list, name) != list.end();
  };
  if (settings_->zones.empty() && settings_->regions.empty())
    return true;
  return has(settings_->zones, zone) || has(settings_->regions, gce_region_of(zone));
}

bool GcePool::counts_region(const std::string& region) const {
  const auto in = [&](const std::string& zone) {
    return gce_region_of(zone) == region;
  };
  return (settings_->zones.empty() && settings_->regions.empty()) ||
         std::ranges::any_of(settings_->zones, in) ||
         std::ranges::find(settings_->regions, region) != settings_->regions.end();
}

Result<std::vector<GceInstance>> GcePool::list() {
  const std::string project = BILLOW_TRY(this->project());
  std::vector<GceInstance> out;
  std::string page;
  for (std::size_t pages = 0; pages < gce_pages_max; ++pages) {
    const ApiAnswer answer = BILLOW_TRY(
        api_.call({.target = gce_list_target(project, options_.installation, pool_.name, page)}));
    if (!answer.ok())
      return gce_failed("list instances", answer);
    if (!gce_is_list(answer.body))
      return fail(Code::unavailable,
                  fmt::format("{}: the list of instances is not a list", gce_api_name));
    GceInstancePage read = read_gce_page(answer.body);
    for (const std::string& zone : read.silent_zones)
      if (counts(zone))
        return fail(Code::unavailable,
                    fmt::format("{}: zone {} does not answer: its machines are not listed",
                                gce_api_name, zone));
    std::ranges::move(read.instances, std::back_inserter(out));
    if (read.next.empty())
      return out;
    page = std::move(read.next);
  }
  return fail(Code::unavailable,
              fmt::format("{}: the list of instances has too many pages", gce_api_name));
}

Result<GceOperation> GcePool::operation(const std::string& zone, const std::string& name) {
  const std::string project = BILLOW_TRY(this->project());
  const ApiAnswer answer =
      BILLOW_TRY(api_.call({.target = gce_operation_target(project, zone, name)}));
  if (!answer.ok())
    return gce_failed("get operation " + name, answer);
  return read_gce_operation(answer.body);
}

Result<std::vector<MachineSighting>> GcePool::nodes() {
  // Before the instances: a policy that is missing here has no instances any more.
  const std::vector<GcePolicy> placed = BILLOW_TRY(policies());
  std::map<std::string, Seen> machines = machines_in(BILLOW_TRY(list()));
  std::set<std::string> listed;
  for (const auto& [name, seen] : machines) {
    listed.insert(name);
    const auto order = pending_.find(name);
    if (order && seen.running == seen.instances && seen.instances >= members_of(order->external))
      pending_.settled(name);
  }
  std::vector<MachineSighting> out;
  look_at_missing(listed, out);
  std::set<std::string> kept;
  for (const GcePolicy& policy : placed) {
    const std::string mark = std::string(policy_mark) + policy.name;
    kept.insert(policy.machine);
    if (const auto machine = machines.find(policy.machine); machine != machines.end()) {
      machine->second.sighting.external += "," + mark;
      continue;
    }
    // Its order has failed, or it has ended, and this is what is left of it.
    const auto failure = std::ranges::find(out, policy.machine, &MachineSighting::name);
    if (failure != out.end()) {
      failure->ended = false;
      failure->external = policy.region + "/" + mark;
    } else if (is_left_over(policy)) {
      MachineSighting& machine = machines[policy.machine].sighting;
      machine.name = policy.machine;
      machine.external = policy.region + "/" + mark;
      machine.note = "placement policy";
    }
  }
  std::erase_if(*ending_.lock(), [&](const std::string& name) {
    return !kept.contains(name) && !machines.contains(name);
  });
  for (auto& [name, seen] : machines)
    out.push_back(std::move(seen.sighting));
  if (pool_.cache_gib > 0)
    BILLOW_TRY_VOID(list_disks(out));
  return out;
}

// Orders that were accepted and are not in the list: they are late, or have failed.
void GcePool::look_at_missing(const std::set<std::string>& listed,
                              std::vector<MachineSighting>& out) {
  for (const PendingOrder& order : pending_.missing(listed, operations_per_look)) {
    const auto known = operation(order.place, order.operation);
    if (!known) {
      if (known.error().code == Code::not_found)
        pending_.settled(order.machine);  // Google forgets operations after some days
      continue;
    }
    if (known->refusal)
      pending_.failed(order, *known->refusal);
    else if (known->done && order.succeeded)
      pending_.failed(order, {RefusalKind::capacity, "it was created and has ended again"});
    else if (known->done)
      pending_.note_success(order.machine);  // the list may be older than the machine
  }
  for (MachineSighting& failure : pending_.failures())
    if (!listed.contains(failure.name))
      out.push_back(std::move(failure));
}

Status GcePool::release(const MachineSighting& machine) {
  const std::string project = BILLOW_TRY(this->project());
  const auto external = read_gce_external(machine.external);
  if (!external)
    return fail(Code::invalid,
                fmt::format("{} has no zone: \"{}\"", machine.name, machine.external));
  if (external->names.size() > 1 || external->names.front().starts_with(policy_mark))
    ending_.lock()->insert(machine.name);
  Status worst;
  for (const std::string& name : external->names)
    if (const Status ended = end(project, external->place, name); !ended)
      worst = ended;
  return worst;
}

// The list says when it is gone.
Status GcePool::end(const std::string& project, const std::string& place, const std::string& name) {
  const std::string what = place + "/" + name;
  if (name.starts_with(disk_mark))
    return drop_disk(project, place, name.substr(disk_mark.size()));
  if (name.starts_with(policy_mark))
    return drop_policy(gce_region_of_place(place), name.substr(policy_mark.size()));
  if (!pending_.may_delete(what))
    return {};
  const auto answer = api_.call(
      {.method = net::Method::del,
       .target = gce_delete_target(project, place, name, request_uuid(random_bytes(16)))});
  if (answer && (answer->ok() || answer->status == 404))
    return {};
  pending_.delete_refused(what);
  if (!answer)
    return pass(answer.error());
  return gce_failed("delete " + name, *answer);
}

// The catalogue has prices by region; Google says which zones have each machine type.
Result<std::vector<MachineOffer>> GcePool::offers() {
  const std::string project = BILLOW_TRY(this->project());
  std::multimap<std::pair<std::string, std::string>, MachineOffer> listed;
  for (MachineOffer& offer : catalogue_offers({.provider = "gcp", .spot = pool_.spot}))
    listed.emplace(std::pair(offer.instance, offer.region), std::move(offer));
  std::vector<MachineOffer> out;
  std::string page;
  for (std::size_t pages = 0; pages < gce_pages_max; ++pages) {
    const ApiAnswer answer =
        BILLOW_TRY(api_.call({.target = gce_machine_types_target(project, page)}));
    if (!answer.ok())
      return gce_failed("list machine types", answer);
    GceTypePage read = read_gce_types(answer.body);
    for (const GceMachineType& type : read.types) {
      const auto [from, to] = listed.equal_range({type.name, gce_region_of(type.zone)});
      for (auto at = from; at != to && counts(type.zone); ++at) {
        out.push_back(at->second);
        out.back().zone = type.zone;
        out.back().cpus = type.cpus;
        out.back().memory_mib = type.memory_mib;
        out.back().fabric = gce_fabric(type.name, *settings_);
      }
    }
    page = std::move(read.next);
    if (page.empty())
      break;
  }
  if (!page.empty())
    return fail(Code::unavailable,
                fmt::format("{}: the list of types has too many pages", gce_api_name));
  add_attached(out);
  std::erase_if(out, [&](const MachineOffer& offer) {
    return !settings_->gpu_types.empty() &&
           std::ranges::find(settings_->gpu_types, offer.gpu_type) == settings_->gpu_types.end();
  });
  return out;
}

// Their price is the sum of two prices that no list has: it is the pool's.
void GcePool::add_attached(std::vector<MachineOffer>& out) {
  for (const std::string& instance : settings_->attached) {
    const auto shape = read_gce_shape(instance);
    if (!shape)
      continue;
    std::string_view card = shape->accelerator;
    for (const std::string_view prefix : {"nvidia-", "tesla-"})
      if (card.starts_with(prefix))
        card.remove_prefix(prefix.size());
    const std::string gpu_type = agent_gpu_type(card, {});
    for (const std::string& zone : settings_->zones)
      for (const bool spot : {false, true})
        if (!spot || pool_.spot)
          out.push_back({.instance = instance,
                         .region = gce_region_of(zone),
                         .zone = zone,
                         .spot = spot,
                         .gpu_type = gpu_type.empty() ? std::string(card) : gpu_type,
                         .gpus = shape->accelerators,
                         .price = pool_.price,
                         .bill_step = seconds(1),
                         .bill_minimum = seconds(60)});
  }
}

Result<Account> GcePool::account() {
  const Login login = BILLOW_TRY(logins_.get());
  Account out;
  out.source = login.source;
  out.identity = gce_identity(login, web_).value_or("(not known)");
  out.id = BILLOW_TRY(project());
  BILLOW_TRY_VOID(check_rights(out.id, out));
  BILLOW_TRY_VOID(check_quotas(out.id, out));
  return out;
}

Status GcePool::check_rights(const std::string& project, Account& account) {
  std::vector<std::string> needed = gce_permissions();
  if (pool_.cache_gib > 0)
    needed.insert(needed.end(), gce_cache_permissions().begin(), gce_cache_permissions().end());
  Json wanted = Json::array();
  for (const std::string& permission : needed)
    wanted.push(permission);
  const ApiAnswer answer =
      BILLOW_TRY(rights_api_.call({.method = net::Method::post,
                                   .target = gce_rights_target(project),
                                   .body = Json::object({{"permissions", std::move(wanted)}})}));
  if (!answer.ok()) {
    account.problems.push_back(
        fmt::format("the rights cannot be checked: {}", gce_error_text(answer)));
    return {};
  }
  std::set<std::string> granted;
  for (const Json& permission : answer.body["permissions"].items())
    granted.emplace(permission.str_or(""));
  for (const std::string& permission : needed)
    if (!granted.contains(permission))
      account.problems.push_back(
          fmt::format("the permission {} is missing: give {} the role in "
                      "packaging/clouds/gce-role.yaml",
                      permission, account.identity));
  return {};
}

// Only limits of zero: what is in use changes while one reads it.
Status GcePool::check_quotas(const std::string& project, Account& account) {
  const auto note_zeros = [&](const Json& quotas, const std::string& where) {
    std::vector<std::string> none;
    for (const Json& quota : quotas.items()) {
      const std::string metric(quota["metric"].str_or(""));
      if (metric.find("GPUS") != std::string::npos && quota["limit"].double_or(1) == 0)
        none.push_back(metric);
    }
    if (!none.empty())
      account.problems.push_back(
          fmt::format("the quota is 0 {}: {}; ask Google for more under IAM & Admin, Quotas", where,
                      join(none, ", ")));
  };
  const ApiAnswer all = BILLOW_TRY(api_.call({.target = gce_project_target(project)}));
  if (!all.ok())
    return gce_failed("get project " + project, all);
  note_zeros(all.body["quotas"], "in all regions");
  std::set<std::string> regions(settings_->regions.begin(), settings_->regions.end());
  for (const std::string& zone : settings_->zones)
    regions.insert(gce_region_of(zone));
  for (const std::string& region : regions) {
    const ApiAnswer here = BILLOW_TRY(api_.call({.target = gce_region_target(project, region)}));
    if (!here.ok())
      return gce_failed("get region " + region, here);
    note_zeros(here.body["quotas"], "in " + region);
  }
  return {};
}

namespace {

Status check_gce_pool(const billow::Pool& settings) {
  BILLOW_TRY(read_gce_settings(settings));
  return {};
}

std::unique_ptr<Pool> make_gce_pool(const billow::Pool& settings, const Options& options) {
  return std::make_unique<GcePool>(settings, options, system_clock());
}

}  // namespace

const Kind gce_kind = {
    .name = "gce",
    .capabilities = {.sizes_to_demand = false,
                     .several_nodes_at_once = true,
                     .list_is_final = false,
                     .from_offers = true,
                     .bills_from_order = true,
                     .list_lag = minutes(5),
                     .disk_mib_max = boot_disk_mib_max(65536),
                     .cache_gib_month = {100'000'000}},  // pd-balanced in us-central1, 2026-11
    .options = {{"project", "the project that pays; default: the credentials' own"},
                {"credentials",
                 "path of a service account's key; default: as Google's clients find it"},
                {"regions", "regions in which to rent, comma-separated; default: all"},
                {"zones", "zones in which to rent, comma-separated; default: all of the regions"},
                {"gpu_types", "rent only these GPUs, e.g. H100,L4"},
                {"attached", "machine types with attached GPUs: n1-standard-8+1xnvidia-tesla-t4"},
                {"image", "image or image family; default: Ubuntu 22.04 with NVIDIA's driver"},
                {"network", "VPC network of the machines (default: default)"},
                {"subnetwork", "subnetwork of the machines"},
                {"fabric_subnetworks",
                 "subnetworks of the GPUs' own cards: four for a3-highgpu-8g, eight for "
                 "a3-megagpu-8g; the image needs Google's plugin for NCCL"},
                {"proxy", "proxy through which machines reach the head: http://HOST:PORT"},
                {"public_address", "false: the network has a NAT (default: true)"},
                {"service_account", "service account of the machines (default: none)"},
                {"disk_gb", "size of the boot disk (default: 200)"},
                {"cache_kind",
                 "type of the cache disks (default: pd-balanced; A3 Ultra, A4 and G4 machines need "
                 "hyperdisk-balanced)"},
                {"run_max", "Google deletes a machine after this long (default: 7d)"},
                {"endpoint", "another address of the API"}},
    .token_life = hours(1),
    .check = check_gce_pool,
    .make = make_gce_pool,
};

}  // namespace billow::pool
