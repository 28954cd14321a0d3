#include "pool/azure/azure_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "base/text.h"
#include "net/ssh_key.h"
#include "pool/azure/azure_login.h"
#include "pool/boot.h"
#include "pool/catalogue_offers.h"
#include "pool/kinds.h"
#include "pool/resource_name.h"

namespace billow::pool {
namespace {

constexpr std::string_view azure_api_name = "Azure";
constexpr std::size_t azure_pages_max = 200;
constexpr std::size_t azure_operations_per_look = 20;  // of machines that are missing in the list
constexpr std::string_view set_mark = "scale-set:";    // before the name of one
constexpr Duration network_wait = seconds(4);
constexpr auto network_poll = std::chrono::milliseconds(250);

std::string azure_endpoint_of(const Result<AzureSettings>& settings) {
  return settings ? settings->endpoint : "https://management.azure.com";
}

AzureLoginOptions login_options(const Result<AzureSettings>& settings, const Options& options) {
  if (!settings)
    return {};
  return {settings->credentials, options.credential, settings->authority, settings->endpoint};
}

std::unexpected<Error> azure_failed(std::string_view what, const ApiAnswer& answer) {
  const bool later = azure_refusal(answer, false).kind == RefusalKind::no_answer;
  return fail(later                  ? Code::unavailable
              : answer.status == 401 ? Code::unauthorized
              : answer.status == 403 ? Code::forbidden
              : answer.status == 404 ? Code::not_found
                                     : Code::invalid,
              fmt::format("{}: {}: {}", azure_api_name, what, azure_error_text(answer)));
}

std::unexpected<Refusal> not_yet(std::string message) {
  return std::unexpected(Refusal{RefusalKind::no_answer, std::move(message)});
}

// "eastus-1" → "1"
std::string zone_number(const std::string& zone) {
  const std::size_t hyphen = zone.rfind('-');
  return hyphen == std::string::npos ? zone : zone.substr(hyphen + 1);
}

}  // namespace

AzurePool::AzurePool(billow::Pool settings, Options options, const Clock& clock)
    : pool_(std::move(settings)),
      options_(std::move(options)),
      clock_(clock),
      settings_(read_azure_settings(pool_)),
      logins_([this] { return azure_login(login_options(settings_, options_), web_, clock_); },
              clock_),
      api_(std::string(azure_api_name), azure_endpoint_of(settings_), web_, logins_, clock_),
      pending_(clock_),
      ssh_key_(make_ssh_key("nobody").public_line) {}

Result<std::string> AzurePool::subscription() {
  if (!settings_)
    return pass(settings_.error());
  if (!settings_->subscription.empty())
    return settings_->subscription;
  const Login login = BILLOW_TRY(logins_.get());
  if (login.account.empty())
    return fail(Code::invalid, fmt::format("{} names no subscription", login.source),
                "add the option subscription to the pool");
  return login.account;
}

Result<AzureGroup> AzurePool::group() {
  AzureGroup group{.subscription = BILLOW_TRY(subscription()), .name = settings_->resource_group};
  if (group.name.empty())
    group.name = "billow-" + options_.installation;
  return group;
}

Result<AzureOrder> AzurePool::describe(const Order& order) {
  const AzureGroup group = BILLOW_TRY(this->group());
  AzureOrder out;
  out.subscription = group.subscription;
  out.group = group.name;
  out.installation = options_.installation;
  out.pool = pool_.name;
  out.machine = order.machine.name;
  out.name = resource_name(options_.installation, order.machine.name);
  const auto& offer = order.machine.offer;
  if (!offer)
    return fail(Code::internal, fmt::format("{} was ordered without a size", order.machine.name));
  out.size = offer->instance;
  out.region = offer->region;
  out.zone = zone_number(offer->zone);
  out.spot = offer->spot;
  out.gpus = offer->gpus > 0;
  out.subnet = settings_->subnet;
  if (out.subnet.empty()) {
    out.subnet = azure_subnet_id(group, out.region);
    out.security_group = azure_security_id(group, out.region);
  }
  out.ssh_key = ssh_key_;
  out.nodes = order.machine.nodes;
  out.user_data = boot_script(
      order, pool_,
      {.rank = azure_set_rank(),
       .end = {},
       .cache_disks = fmt::format("/dev/disk/azure/scsi1/lun{0} /dev/disk/azure/data/by-lun/{0}",
                                  azure_cache_lun)});
  out.disk_gb = boot_disk_gib(order.machine, settings_->disk_gb);
  return out;
}

Ordered AzurePool::want(const Order& order) {
  if (order.machine.is_disk())
    return want_disk(order.machine);
  const auto described = describe(order);
  if (!described)
    return std::unexpected(refusal_of_error(described.error()));
  const AzureGroup group{described->subscription, described->group};
  if (const Ordered ready = prepare(group, described->region); !ready)
    return ready;
  return create(group, *described);
}

Ordered AzurePool::put(const std::string& target, Json body) {
  const auto answer =
      api_.call({.method = net::Method::put, .target = target, .body = std::move(body)});
  if (!answer)
    return std::unexpected(refusal_of_error(answer.error()));
  if (!answer->ok())
    return std::unexpected(azure_refusal(*answer, false));
  return {};
}

Ordered AzurePool::prepare(const AzureGroup& group, const std::string& region) {
  const std::scoped_lock lock(preparing_);
  if (prepared_.contains(region))
    return {};
  const auto found = api_.call({.target = azure_group_target(group)});
  if (!found)
    return std::unexpected(refusal_of_error(found.error()));
  if (!found->ok() && found->status != 404)
    return std::unexpected(azure_refusal(*found, false));
  if (found->status == 404)
    if (const Ordered made =
            put(azure_group_target(group), azure_group_body(options_.installation, region));
        !made)
      return made;
  if (settings_->subnet.empty())
    if (const Ordered made = make_network(group, region); !made)
      return made;
  prepared_.insert(region);
  return {};
}

Ordered AzurePool::make_network(const AzureGroup& group, const std::string& region) {
  const SteadyTime give_up = clock_.steady() + network_wait;
  for (bool asked = false;;) {
    const auto found = api_.call({.target = azure_network_target(group, region)});
    if (!found)
      return std::unexpected(refusal_of_error(found.error()));
    const std::string_view state =
        found->body.at("properties", "provisioningState").str_or("Succeeded");
    if (found->ok() && state == "Succeeded")
      return {};
    if (!found->ok() && found->status != 404)
      return std::unexpected(azure_refusal(*found, false));
    if (!asked && (found->status == 404 || state == "Failed")) {
      asked = true;
      if (const Ordered made = put(azure_security_target(group, region),
                                   azure_security_body(options_.installation, region));
          !made)
        return made;
      if (const Ordered made = put(azure_network_target(group, region),
                                   azure_network_body(group, options_.installation, region));
          !made)
        return made;
      continue;
    }
    if (clock_.steady() >= give_up)
      return not_yet(fmt::format("the network in {} is being made", region));
    std::this_thread::sleep_for(network_poll);
  }
}

Ordered AzurePool::create(const AzureGroup& group, const AzureOrder& order) {
  const bool gang = order.nodes > 1;
  if (gang) {
    ++gang_orders_;
    has_sets_ = true;
  }
  const auto answer = api_.call(
      {.method = net::Method::put,
       .target =
           gang ? azure_set_target(group, order.name) : azure_machine_target(group, order.name),
       .body = gang ? azure_set_body(order, *settings_) : azure_machine_body(order, *settings_),
       .headers = {{"if-none-match", "*"}}});
  if (!answer)
    return std::unexpected(refusal_of_error(answer.error()));
  if (answer->status == 412)
    return already_there(group, order);
  if (answer->status == 404 && azure_error_code(answer->body) == "ResourceGroupNotFound") {
    const std::scoped_lock lock(preparing_);
    prepared_.clear();
    return not_yet(fmt::format("the resource group {} has been deleted", group.name));
  }
  if (!answer->ok())
    return std::unexpected(azure_refusal(*answer, order.spot));
  if (const std::string operation(answer->headers.get("azure-asyncoperation")); !operation.empty())
    pending_.accepted({.machine = order.machine,
                       .external = (gang ? std::string(set_mark) : "") + order.name,
                       .place = order.spot ? "spot" : "",
                       .operation = operation,
                       .since = {}});
  return {};
}

// A machine of this name exists: an earlier answer was lost, or it belongs to somebody else.
Ordered AzurePool::already_there(const AzureGroup& group, const AzureOrder& order) {
  const auto answer =
      api_.call({.target = order.nodes > 1 ? azure_set_target(group, order.name)
                                           : azure_machine_target(group, order.name)});
  if (!answer)
    return std::unexpected(refusal_of_error(answer.error()));
  if (!answer->ok())
    return not_yet(azure_error_text(*answer));
  const AzureMachine machine = read_azure_machine(answer->body);
  if (machine.installation == order.installation && machine.machine == order.machine)
    return {};
  return std::unexpected(
      Refusal{RefusalKind::settings,
              fmt::format("a machine named {} exists in resource group {} and is not ours",
                          order.name, order.group)});
}

Result<std::vector<AzureMachine>> AzurePool::list(std::string target) {
  std::vector<AzureMachine> out;
  for (std::size_t pages = 0; pages < azure_pages_max; ++pages) {
    const ApiAnswer answer = BILLOW_TRY(api_.call({.target = target}));
    // Nothing has been ordered yet, or somebody deleted everything.
    if (answer.status == 404 && azure_error_code(answer.body) == "ResourceGroupNotFound")
      return std::vector<AzureMachine>{};
    if (!answer.ok())
      return azure_failed("list machines", answer);
    if (!answer.body["value"].is_array())
      return fail(Code::unavailable,
                  fmt::format("{}: the list of machines is not a list", azure_api_name));
    AzureMachinePage read = read_azure_page(answer.body);
    std::ranges::move(read.machines, std::back_inserter(out));
    if (read.next.empty())
      return out;
    target = std::move(read.next);
  }
  return fail(Code::unavailable,
              fmt::format("{}: the list of machines has too many pages", azure_api_name));
}

// Machines, and scale sets as machines whose name here has a mark.
Result<std::vector<AzureMachine>> AzurePool::list() {
  const AzureGroup group = BILLOW_TRY(this->group());
  std::vector<AzureMachine> out = BILLOW_TRY(list(azure_machines_target(group)));
  // Without gangs there are none, and no request is spent on them. An earlier head may have made
  // some.
  if (!has_sets_)
    return out;
  const std::uint64_t before = gang_orders_;
  std::vector<AzureMachine> sets = BILLOW_TRY(list(azure_sets_target(group)));
  if (sets.empty() && before == gang_orders_)
    has_sets_ = false;
  for (AzureMachine& set : sets) {
    set.name = std::string(set_mark) + set.name;
    out.push_back(std::move(set));
  }
  return out;
}

MachineSighting AzurePool::sighting_of(const AzureGroup& group, const AzureMachine& machine) {
  MachineSighting seen;
  seen.name = machine.machine;
  seen.external = machine.name;
  seen.note = machine.state;
  if (machine.state != "Failed")
    return seen;
  // The operation of the order has the most exact reason; after a restart only the machine has one.
  std::optional<Refusal> refusal;
  if (const auto order = pending_.find(machine.machine)) {
    const auto answer = api_.call({.target = order->operation});
    if (answer && answer->ok())
      refusal = read_azure_operation(answer->body, order->place == "spot").refusal;
  }
  const bool gang = machine.name.starts_with(set_mark);
  if (!refusal && !gang) {
    const auto answer = api_.call({.target = azure_machine_view_target(group, machine.name)});
    if (answer && answer->ok())
      refusal = read_azure_failure(answer->body);
  }
  // Some of its machines may run: a gang needs all of them.
  if (!refusal && gang)
    refusal = Refusal{RefusalKind::capacity, "the scale set could not be created"};
  if (refusal) {
    seen.failed = refusal->kind;
    seen.note = refusal->message;
    pending_.settled(machine.machine);
  }
  return seen;
}

Result<std::vector<MachineSighting>> AzurePool::nodes() {
  const std::vector<AzureMachine> machines = BILLOW_TRY(list());
  const AzureGroup group = BILLOW_TRY(this->group());
  std::vector<MachineSighting> out;
  std::set<std::string> listed;
  for (const AzureMachine& machine : machines) {
    if (machine.installation != options_.installation || !named_after(machine.machine, pool_.name))
      continue;
    listed.insert(machine.machine);
    if (machine.state == "Succeeded")
      pending_.settled(machine.machine);
    out.push_back(sighting_of(group, machine));
  }
  look_at_missing(listed, out);
  if (pool_.cache_gib > 0)
    BILLOW_TRY_VOID(list_disks(out));
  return out;
}

// Orders that were accepted and are not in the list: they are late, or have failed.
void AzurePool::look_at_missing(const std::set<std::string>& listed,
                                std::vector<MachineSighting>& out) {
  for (const PendingOrder& order : pending_.missing(listed, azure_operations_per_look)) {
    const auto answer = api_.call({.target = order.operation});
    if (!answer)
      continue;
    if (answer->status == 404)
      pending_.settled(order.machine);  // Azure forgets operations after a day
    if (!answer->ok())
      continue;
    const AzureOperation known = read_azure_operation(answer->body, order.place == "spot");
    if (known.refusal)
      pending_.failed(order, *known.refusal);
    else if (known.done && order.succeeded)
      pending_.failed(order, {RefusalKind::capacity, "it was created and has ended again"});
    else if (known.done)
      pending_.note_success(order.machine);  // the list may be older than the machine
  }
  for (MachineSighting& failure : pending_.failures())
    if (!listed.contains(failure.name))
      out.push_back(std::move(failure));
}

Status AzurePool::release(const MachineSighting& machine) {
  if (machine.external.starts_with(disk_mark))
    return drop_disk(machine.external.substr(disk_mark.size()));
  const AzureGroup group = BILLOW_TRY(this->group());
  if (!pending_.may_delete(machine.external))
    return {};
  const bool gang = machine.external.starts_with(set_mark);
  const auto answer = api_.call(
      {.method = net::Method::del,
       .target = gang ? azure_set_target(group, machine.external.substr(set_mark.size())) +
                            "&forceDeletion=true"
                      : azure_delete_target(group, machine.external)});
  if (answer && (answer->ok() || answer->status == 404))
    return {};  // the list says when it is gone
  pending_.delete_refused(machine.external);
  if (!answer)
    return pass(answer.error());
  return azure_failed("delete " + machine.external, *answer);
}

Result<std::vector<MachineOffer>> AzurePool::offers() {
  if (!settings_)
    return pass(settings_.error());
  std::vector<MachineOffer> out;
  for (const std::string& region : settings_->regions)
    BILLOW_TRY_VOID(add_offers(region, out));
  std::erase_if(out, [&](const MachineOffer& offer) {
    return !settings_->gpu_types.empty() &&
           std::ranges::find(settings_->gpu_types, offer.gpu_type) == settings_->gpu_types.end();
  });
  return out;
}

// By the second since June 2025, at least five minutes:
// https://learn.microsoft.com/en-us/answers/questions/2259765
constexpr Duration azure_bill_minimum = minutes(5);

// The catalogue has prices by region; Azure says which sizes this subscription may use in which
// zones.
Status AzurePool::add_offers(const std::string& region, std::vector<MachineOffer>& out) {
  std::multimap<std::string, MachineOffer> listed;
  for (MachineOffer& offer : catalogue_offers({.provider = "azure",
                             .regions = {region},
                             .bill_minimum = azure_bill_minimum,
                             .spot = pool_.spot}))
    listed.emplace(offer.instance, std::move(offer));
  std::string target = azure_skus_target(BILLOW_TRY(subscription()), region);
  for (std::size_t pages = 0; pages < azure_pages_max; ++pages) {
    const ApiAnswer answer = BILLOW_TRY(api_.call({.target = target, .timeout = seconds(60)}));
    if (!answer.ok())
      return azure_failed("list sizes in " + region, answer);
    AzureSizePage read = read_azure_sizes(answer.body, region);
    for (const AzureSize& size : read.sizes) {
      std::vector<std::string> places;
      for (const std::string& zone : size.zones)
        places.push_back(region + "-" + zone);
      if (size.regional)
        places.emplace_back();
      const auto [from, to] = listed.equal_range(size.name);
      for (auto at = from; at != to; ++at)
        for (const std::string& zone : places)
          if (!at->second.spot || size.spot) {
            out.push_back(at->second);
            out.back().zone = zone;
            out.back().gpus = size.gpus;
            out.back().cpus = size.cpus;
            out.back().memory_mib = size.memory_mib;
            out.back().fabric = size.infiniband ? "infiniband" : "";
          }
    }
    if (read.next.empty())
      return {};
    target = std::move(read.next);
  }
  return fail(Code::unavailable,
              fmt::format("{}: the list of sizes has too many pages", azure_api_name));
}

Result<Account> AzurePool::account() {
  const Login login = BILLOW_TRY(logins_.get());
  Account out;
  out.source = login.source;
  out.identity = login.identity;
  out.id = BILLOW_TRY(subscription());
  const ApiAnswer answer = BILLOW_TRY(api_.call({.target = azure_subscription_target(out.id)}));
  if (!answer.ok())
    return azure_failed("get subscription " + out.id, answer);
  if (const std::string_view state = answer.body["state"].str_or("Enabled"); state != "Enabled")
    out.problems.push_back(
        fmt::format("the subscription is {}: open it again in the Azure portal", state));
  check_rights(out);
  BILLOW_TRY_VOID(check_quotas(out));
  return out;
}

void AzurePool::check_rights(Account& account) {
  const auto answer = api_.call({.target = azure_permissions_target(account.id)});
  if (!answer || !answer->ok()) {
    account.problems.push_back(
        fmt::format("the rights cannot be checked: {}",
                    answer ? azure_error_text(*answer) : answer.error().message));
    return;
  }
  std::vector<std::string> needed = azure_actions();
  if (pool_.cache_gib > 0)
    needed.insert(needed.end(), azure_cache_actions().begin(), azure_cache_actions().end());
  for (const std::string& action : needed)
    if (!azure_action_granted(answer->body, action))
      account.problems.push_back(
          fmt::format("the right {} is missing: give {} the role in "
                      "packaging/clouds/azure-role.json",
                      action, account.identity));
}

// Only limits of zero: what is in use changes while one reads it.
Status AzurePool::check_quotas(Account& account) {
  for (const std::string& region : settings_->regions) {
    const ApiAnswer answer =
        BILLOW_TRY(api_.call({.target = azure_usages_target(account.id, region)}));
    if (!answer.ok())
      return azure_failed("list the quotas of " + region, answer);
    std::vector<std::string> none;
    for (const Json& usage : answer.body["value"].items()) {
      const std::string name(usage.at("name", "value").str_or(""));
      const bool matters =
          name.starts_with("standardN") || name == "cores" || name == "lowPriorityCores";
      if (matters && number_of(usage["limit"], 1) == 0)
        none.push_back(name);
    }
    if (!none.empty())
      account.problems.push_back(fmt::format(
          "the quota is 0 in {}: {}; ask Azure for more under Quotas", region, join(none, ", ")));
  }
  return {};
}

namespace {

Status check_azure_pool(const billow::Pool& settings) {
  BILLOW_TRY(read_azure_settings(settings));
  return {};
}

std::unique_ptr<Pool> make_azure_pool(const billow::Pool& settings, const Options& options) {
  return std::make_unique<AzurePool>(settings, options, system_clock());
}

}  // namespace

const Kind azure_kind = {
    .name = "azure",
    .capabilities = {.sizes_to_demand = false,
                     .several_nodes_at_once = true,
                     .list_is_final = false,
                     .from_offers = true,
                     .bills_from_order = true,
                     .list_lag = minutes(5),
                     .disk_mib_max = boot_disk_mib_max(4095),
                     .cache_gib_month = {75'000'000}},  // StandardSSD_LRS in eastus, 2026-11
    .options =
        {{"regions", "regions in which to rent, comma-separated: eastus,westeurope", true},
         {"subscription", "the subscription that pays; default: the credentials' own"},
         {"credentials",
          "path of what az ad sp create-for-rbac printed; default: as Azure's "
          "clients find it"},
         {"resource_group", "resource group of the machines (default: billow-INSTALLATION)"},
         {"gpu_types", "rent only these GPUs, e.g. H100,A100-80"},
         {"image", "PUBLISHER:OFFER:SKU:VERSION; default: Ubuntu 22.04 with NVIDIA's driver"},
         {"subnet", "resource id of the machines' subnet; default: one network in each region"},
         {"public_address", "false: the subnet has a NAT gateway (default: true)"},
         {"proxy", "proxy through which machines reach the head: http://HOST:PORT"},
         {"identity", "resource id of the machines' managed identity (default: none)"},
         {"disk_gb", "size of the disk (default: 256)"},
         {"disk_kind", "kind of the disk (default: Premium_LRS)"},
         {"cache_kind", "kind of the cache disks (default: StandardSSD_LRS)"},
         {"authority", "another address of the login service: https://login.microsoftonline.us"},
         {"endpoint", "another address of the API: https://management.usgovcloudapi.net"}},
    .token_life = hours(1),
    .check = check_azure_pool,
    .make = make_azure_pool,
};

}  // namespace billow::pool
