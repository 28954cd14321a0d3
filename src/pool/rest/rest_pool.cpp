#include "pool/rest/rest_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/log.h"
#include "base/text.h"
#include "pool/boot.h"
#include "pool/kinds.h"
#include "pool/rest/offers.h"
#include "pool/rest/providers.h"

namespace billow::pool::rest {
namespace {

constexpr Duration look_life = seconds(2);   // a look before a creation may be this old
constexpr Duration end_again = seconds(20);  // a machine that is still listed is ended again
constexpr Duration operation_tick = seconds(2);
constexpr int absent_looks_needed = 2;

std::unexpected<Refusal> unknown_outcome(std::string why) {
  return std::unexpected(Refusal{RefusalKind::no_answer, std::move(why)});
}

// An order that could not be sent: what is missing, or who did not answer.
std::unexpected<Refusal> not_sent(const Error& error) {
  RefusalKind kind = RefusalKind::settings;
  if (error.code == Code::unavailable || error.code == Code::timed_out)
    return unknown_outcome(error.message);
  if (error.code == Code::exhausted)
    kind = RefusalKind::capacity;
  return std::unexpected(Refusal{
      kind, error.hint.empty() ? error.message : fmt::format("{}; {}", error.message, error.hint)});
}

}  // namespace

RestPool::RestPool(const billow::Pool& settings,
                   const Options& options,
                   Provider provider,
                   const Clock& clock)
    : settings_(settings),
      options_(options),
      provider_(std::move(provider)),
      names_(options.installation, settings.name, provider_.names.bytes_max),
      clock_(clock),
      began_(clock.wall()) {}

Result<std::unique_ptr<RestPool>> RestPool::create(const billow::Pool& settings,
                                                   const Options& options,
                                                   Provider provider,
                                                   const Clock& clock) {
  std::unique_ptr<RestPool> pool(new RestPool(settings, options, std::move(provider), clock));
  const auto address = settings.options.find("address");
  pool->api_ = BILLOW_TRY(
      Api::create(pool->provider_,
                  {.address = address == settings.options.end() ? std::string() : address->second,
                   .credential = [auth = pool->provider_.auth,
                                  credential = options.credential](const std::string& name) {
                     return credential_value(auth, credential, name);
                   }}));
  return pool;
}

void RestPool::note_try(const std::string& machine, bool accepted, const std::string& operation) {
  auto memory = memory_.lock();
  memory->tries[machine] = {.at = clock_.steady(), .accepted = accepted, .operation = operation};
}

// Whether the provider lists the machine, from a look that is at most two seconds old.
Result<bool> RestPool::exists_already(const std::string& machine) {
  const auto listed = [&](const std::vector<Found>& found) {
    return std::any_of(found.begin(), found.end(), [&](const Found& f) {
      return f.machine == machine && f.phase != MachinePhase::gone;
    });
  };
  {
    auto memory = memory_.lock();
    if (memory->looked && clock_.steady() - memory->looked_at < look_life)
      return listed(memory->look);
  }
  const auto found = BILLOW_TRY(look());
  remember(found);
  return listed(found);
}

namespace {

std::string id_of(const std::map<std::string, std::string>& listed, const std::string& machine) {
  for (const auto& [id, name] : listed)
    if (name == machine)
      return id;
  return {};
}

}  // namespace

Ordered RestPool::want(const Order& order) {
  const std::string& machine = order.machine.name;
  {
    auto memory = memory_.lock();
    // An earlier life of this head may have sent this order in its last moment.
    if (order.machine.wanted_at.ns != 0 && order.machine.wanted_at < began_ &&
        !memory->tries.contains(machine) && id_of(memory->listed, machine).empty())
      memory->tries[machine] = {.at = clock_.steady()};
    memory->ordering.insert(machine);
  }
  const auto finish = [&](Ordered outcome) {
    memory_.lock()->ordering.erase(machine);
    return outcome;
  };
  if (!provider_.names.unique) {
    const auto there = exists_already(machine);
    if (!there)
      return finish(not_sent(there.error()));
    if (*there)
      return finish({});
  }
  Try before;
  bool tried = false;
  {
    auto memory = memory_.lock();
    const auto found = memory->tries.find(machine);
    tried = found != memory->tries.end();
    if (tried)
      before = found->second;
  }
  if (tried && !before.operation.empty()) {
    if (Ordered followed = follow_operation(machine, before.operation); !followed)
      return finish(std::move(followed));
  }
  if (tried && !provider_.names.unique &&
      (clock_.steady() - before.at < provider_.list_lag ||
       before.absent_looks < absent_looks_needed)) {
    if (before.accepted)
      return finish({});
    return finish(unknown_outcome(
        fmt::format("{}: an earlier order of {} was not answered; it is repeated when the list "
                    "has had {} to show the machine",
                    provider_.title, machine, format_duration(provider_.list_lag))));
  }
  auto values = machine_values(order);
  if (!values)
    return finish(not_sent(values.error()));
  return finish(create_machine(order, *values));
}

Status RestPool::make_objects(Values& values) {
  for (const ExtraObject& object : provider_.objects) {
    if (!object.create)
      continue;
    const auto answer = api_->send(*object.create, values, Api::Use::change);
    if (!answer)
      return pass(answer.error().error, object.name);
    if (!api_->succeeded(*answer)) {
      const Refusal refused = api_->refusal_of(*answer);
      return fail(refused.kind == RefusalKind::no_answer ? Code::unavailable : Code::invalid,
                  refused.message);
    }
    const std::string id = scalar_text(object.id.first(answer->body));
    if (id.empty())
      return fail(Code::unavailable,
                  fmt::format("{} made a {} and did not say its id", provider_.title, object.name));
    values[object.name + "_id"] = id;
  }
  return {};
}

Ordered RestPool::create_machine(const Order& order, Values& values) {
  const std::string& machine = order.machine.name;
  if (const Status made = make_objects(values); !made)
    return not_sent(made.error());
  const auto answer = api_->send(provider_.create.call, values, Api::Use::create);
  if (!answer) {
    if (!answer.error().sent)
      return not_sent(answer.error().error);
    note_try(machine, false);
    return settle_unknown(machine, answer.error().error.message);
  }
  if (!api_->succeeded(*answer)) {
    const Refusal refused = api_->refusal_of(*answer);
    // Some providers refuse and create: what exists nevertheless is ended. If that fails, the
    // machine is in the list, in a state that is dead.
    if (provider_.create.leftover) {
      const std::string id = scalar_text(provider_.create.leftover->first(answer->body));
      if (!id.empty())
        if (const Status ended = end_machine(id, machine); !ended)
          log_warn("{}: {} of a refused order is still there: {}", settings_.name, id,
                   ended.error().message);
    }
    if (refused.kind != RefusalKind::no_answer || answer->status == 429)
      return std::unexpected(refused);
    note_try(machine, false);
    return settle_unknown(machine, refused.message);
  }
  std::string operation;
  if (provider_.create.operation)
    operation = scalar_text(provider_.create.operation->id.first(answer->body));
  note_try(machine, true, operation);
  if (operation.empty())
    return {};
  return follow_operation(machine, operation);
}

// Nobody knows whether the machine exists: a look may show it.
Ordered RestPool::settle_unknown(const std::string& machine, const std::string& why) {
  const auto found = look();
  if (!found)
    return unknown_outcome(why);
  remember(*found);
  const bool there = std::any_of(found->begin(), found->end(),
                                 [&](const Found& f) { return f.machine == machine; });
  if (there)
    return {};
  return unknown_outcome(why);
}

// Some creations are carried out later and fail then. One that takes longer is followed when the
// head asks again.
Ordered RestPool::follow_operation(const std::string& machine, const std::string& operation) {
  const CreateCall::Operation& how = *provider_.create.operation;
  Values values = pool_values();
  values["operation"] = operation;
  if (const Status found = look_up(how.call, values); !found)
    return {};
  const SteadyTime until = clock_.steady() + how.wait;
  for (;;) {
    const auto answer = api_->send(how.call, values, Api::Use::read);
    if (answer && api_->succeeded(*answer)) {
      const std::string state = scalar_text(how.state.first(answer->body));
      if (std::find(how.failed.begin(), how.failed.end(), state) != how.failed.end()) {
        memory_.lock()->tries.erase(machine);
        return std::unexpected(api_->refusal_of(answer->status,
                                                scalar_text(how.code.first(answer->body)),
                                                scalar_text(how.text.first(answer->body))));
      }
      if (std::find(how.done.begin(), how.done.end(), state) != how.done.end())
        return {};
    }
    if (clock_.steady() + operation_tick >= until)
      return {};
    std::this_thread::sleep_for(std::chrono::nanoseconds(operation_tick.ns));
  }
}

Status RestPool::end_machine(const std::string& id, const std::string& machine) {
  {
    auto memory = memory_.lock();
    const auto asked = memory->ended.find(id);
    if (asked != memory->ended.end() && clock_.steady() - asked->second < end_again)
      return {};  // it is still listed, because ending it takes a while
  }
  Values values = pool_values();
  values["id"] = id;
  values["machine"] = machine;
  values["name"] = names_.provider_name(machine);
  BILLOW_TRY_VOID(look_up(provider_.remove.call, values));
  const auto answer = api_->send(provider_.remove.call, values, Api::Use::change);
  if (!answer)
    return pass(answer.error().error, "delete " + machine);
  if (!api_->succeeded(*answer) && !api_->matches(provider_.remove.gone, *answer)) {
    const Refusal refused = api_->refusal_of(*answer);
    if (api_->matches(provider_.remove.not_yet, *answer))
      return fail(Code::conflict, fmt::format("{} cannot be ended yet and is asked again: {}",
                                              machine, refused.message));
    return fail(Code::unavailable, fmt::format("delete {}: {}", machine, refused.message));
  }
  memory_.lock()->ended[id] = clock_.steady();
  return {};
}

// Ending is a state, not a call: the head calls this again until the list no longer has the
// machine, whatever the provider answered.
Status RestPool::release(const MachineSighting& machine) {
  std::string id = machine.external;
  {
    auto memory = memory_.lock();
    for (const Found& found : memory->look)
      if (found.id == id && found.phase == MachinePhase::going)
        return {};
    if (id.empty())
      id = id_of(memory->listed, machine.name);
  }
  if (id.empty())
    return fail(Code::unavailable, fmt::format("{} is not listed yet", machine.name));
  return end_machine(id, machine.name);
}

Result<std::vector<MachineOffer>> RestPool::offers() {
  Values values = pool_values();
  for (const OfferCall& call : provider_.offers) {
    BILLOW_TRY_VOID(look_up(call.list.call, values));
    for (const OfferCall::Availability& more : call.availability)
      BILLOW_TRY_VOID(look_up(more.list.call, values));
  }
  auto all = BILLOW_TRY(fetch_offers(provider_, *api_, values, clock_.wall()));
  std::erase_if(all, [&](const MachineOffer& offer) { return !is_wanted(settings_, offer); });
  return all;
}

Result<Account> RestPool::account() {
  Account out;
  out.source = provider_.auth.key;
  Values values = pool_values();
  if (!provider_.account) {
    BILLOW_TRY(look());
    return out;
  }
  BILLOW_TRY_VOID(look_up(provider_.account->call, values));
  const auto answer = api_->send(provider_.account->call, values, Api::Use::read);
  if (!answer)
    return pass(answer.error().error);
  if (!api_->succeeded(*answer)) {
    const Refusal refused = api_->refusal_of(*answer);
    return fail(
        refused.kind == RefusalKind::no_answer ? Code::unavailable : Code::unauthorized,
        refused.message,
        fmt::format("check {} in {}", provider_.auth.key,
                    provider_.console.empty() ? "the provider's console" : provider_.console));
  }
  if (provider_.account->id)
    out.id = scalar_text(provider_.account->id->first(answer->body));
  if (provider_.account->identity)
    out.identity = scalar_text(provider_.account->identity->first(answer->body));
  return out;
}

namespace {

// A pool whose provider file cannot be read any more: it orders nothing and forgets nothing.
class UnreadablePool final : public Pool {
 public:
  explicit UnreadablePool(Error why) : why_(std::move(why)) {}
  Ordered want(const Order&) override {
    return std::unexpected(Refusal{RefusalKind::settings, why_.message});
  }
  Result<std::vector<MachineSighting>> nodes() override { return pass(why_); }
  Status release(const MachineSighting&) override { return pass(why_); }

 private:
  Error why_;
};

std::string provider_folder(const Options& options) {
  // The work directory lies in the data directory.
  const auto slash = options.work_dir.rfind('/');
  return slash == std::string::npos ? std::string()
                                    : options.work_dir.substr(0, slash) + "/providers";
}

Result<std::unique_ptr<RestPool>> open_pool(const billow::Pool& settings, const Options& options) {
  const auto named = settings.options.find("provider");
  if (named == settings.options.end())
    return fail(Code::invalid, "the pool names no provider");
  Provider provider = BILLOW_TRY(find_provider(named->second, provider_folder(options)));
  return RestPool::create(settings, options, std::move(provider));
}

std::unique_ptr<Pool> make_rest_pool(const billow::Pool& settings, const Options& options) {
  auto made = open_pool(settings, options);
  if (!made) {
    log_error("pool {}: {}", settings.name, made.error().message);
    return std::make_unique<UnreadablePool>(made.error());
  }
  return std::move(*made);
}

// A provider of the data directory is not known here: then its options are checked when the pool
// is opened.
Status check_rest_pool(const billow::Pool& settings) {
  const auto named = settings.options.find("provider");
  if (named == settings.options.end() || named->second.empty())
    return fail(Code::invalid, "a pool of kind rest needs the option provider",
                "add --option provider=NAME");
  const auto provider = find_provider(named->second, {});
  if (!provider) {
    const bool elsewhere =
        provider.error().code == Code::not_found && named->second.find('/') == std::string::npos;
    return elsewhere ? Status() : pass(provider.error());
  }
  return check_rest_options(settings, *provider);
}

}  // namespace

void adjust_rest_pool(const billow::Pool& settings, PoolCapabilities& capabilities) {
  const auto named = settings.options.find("provider");
  if (named == settings.options.end())
    return;
  if (const auto provider = find_provider(named->second, {}); provider && provider->disk.gb_max > 0)
    capabilities.disk_mib_max = boot_disk_mib_max(provider->disk.gb_max);
}

}  // namespace billow::pool::rest

namespace billow::pool {

const Kind rest_kind = {
    .name = "rest",
    .capabilities = {.sizes_to_demand = false,
                     .several_nodes_at_once = false,
                     .list_is_final = false,
                     .from_offers = true,
                     .bills_from_order = true,
                     .list_lag = minutes(5)},
    .options = {{"provider", "name of the provider, or the path of its file", true}},
    .checks_options = true,
    .token_life = hours(1),
    .check = rest::check_rest_pool,
    .make = rest::make_rest_pool,
    .adjust = rest::adjust_rest_pool,
};

}  // namespace billow::pool
