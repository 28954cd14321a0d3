// The values of a request's placeholders: from the order, the pool's options, the provider's file
// and, for those that nobody set, from the provider itself.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "base/crypto.h"
#include "base/text.h"
#include "pool/boot.h"
#include "pool/rest/offers.h"
#include "pool/rest/rest_pool.h"
#include "pool/rest/start.h"

namespace billow::pool::rest {
namespace {

constexpr Duration lookup_life = minutes(10);

// Options that every provider has.
constexpr std::pair<const char*, const char*> common_options[] = {
    {"provider", "name of the provider, or the path of its file"},
    {"instance", "kind of machine (default: the cheapest offer that fits --gpu)"},
    {"region", "place (default: any)"},
    {"zone", "part of the region"},
    {"regions", "order only in these places, separated by commas"},
    {"gpu_types", "order only these GPUs, e.g. H100,L4"},
    {"address", "address of the API, for a private installation of it"},
};

constexpr std::int64_t disk_gb_default = 100, disk_gb_max = 1 << 20;

// "NAME=VALUE" lines.
std::string line_of(const std::string& text, const std::string& name) {
  for (const std::string& line : split(text, '\n')) {
    const std::string_view one = trim(line);
    if (one.starts_with(name + "="))
      return std::string(trim(one.substr(name.size() + 1)));
  }
  return {};
}

// Whether an order must say where.
bool places_differ(const Provider& provider) {
  return std::any_of(provider.offers.begin(), provider.offers.end(), [](const OfferCall& call) {
    return call.places || !call.availability.empty();
  });
}

}  // namespace

Result<std::string> credential_value(const Auth& auth,
                                     const std::string& credential,
                                     const std::string& name) {
  std::string value;
  if (!credential.empty()) {
    value = line_of(credential, name);
    const std::string text(trim(credential));
    const auto colon = text.find(':');
    if (value.empty() && auth.secret.empty())
      value = text;
    else if (value.empty() && colon != std::string::npos)
      value = name == auth.key ? text.substr(0, colon) : text.substr(colon + 1);
  } else if (const char* set = std::getenv(name.c_str())) {
    value = trim(set);
  }
  if (value.empty())
    return fail(
        Code::unauthorized, fmt::format("{} is not set", name),
        fmt::format("set {} in the head's environment, or store the key with the pool", name));
  return value;
}

Status check_rest_options(const billow::Pool& settings, const Provider& provider) {
  std::vector<std::string> known;
  for (const auto& [name, help] : common_options)
    known.emplace_back(name);
  for (const ProviderOption& option : provider.options)
    known.push_back(option.name);
  for (const Lookup& lookup : provider.lookups)
    known.push_back(lookup.name);
  for (const auto& [name, value] : settings.options)
    if (std::find(known.begin(), known.end(), name) == known.end())
      return fail(Code::invalid, fmt::format("{} has no option \"{}\"", provider.title, name),
                  "use one of: " + join(known, ", "));
  for (const ProviderOption& option : provider.options) {
    const auto given = settings.options.find(option.name);
    if (option.required && (given == settings.options.end() || given->second.empty()))
      return fail(Code::invalid, fmt::format("{} needs the option {}", provider.title, option.name),
                  fmt::format("add --option {}=VALUE: {}", option.name, option.help));
  }
  const auto disk = settings.options.find(provider.disk.option);
  if (disk != settings.options.end())
    if (const auto size = parse_int(disk->second, 1, disk_gb_max); !size)
      return pass(size.error(), disk->first + ", in GB without a unit");
  return {};
}

bool is_wanted(const billow::Pool& settings, const MachineOffer& offer) {
  const auto in_list = [&](const char* option, const std::string& value) {
    const auto given = settings.options.find(option);
    if (given == settings.options.end() || given->second.empty())
      return true;
    for (const std::string& one : split(given->second, ','))
      if (lower(trim(one)) == lower(value))
        return true;
    return false;
  };
  return (settings.spot || !offer.spot) && in_list("regions", offer.region) &&
         in_list("gpu_types", offer.gpu_type);
}

Values RestPool::pool_values() const {
  Values values = {{"installation", options_.installation}, {"pool", settings_.name}};
  for (const ProviderOption& option : provider_.options)
    values[variable_of(option.name)] = option.fallback;
  for (const auto& [name, value] : settings_.options)
    values[variable_of(name)] = value;
  return values;
}

Result<std::string> RestPool::find_value(const Lookup& lookup, Values& values) {
  BILLOW_TRY_VOID(look_up(lookup.list.call, values));
  const Template is = BILLOW_TRY(Template::parse(lookup.where_is));
  const std::string wanted = BILLOW_TRY(is.text(values));
  const std::string key = fmt::format("{}\n{}", lookup.name, wanted);
  {
    auto memory = memory_.lock();
    const auto known = memory->lookups.find(key);
    if (known != memory->lookups.end() && clock_.steady() - known->second.second < lookup_life)
      return known->second.first;
  }
  for (const Json& item : BILLOW_TRY(api_->list(lookup.list, values))) {
    if (lookup.where && scalar_text(lookup.where->first(item)) != wanted)
      continue;
    std::string value = scalar_text(lookup.value.first(item));
    if (value.empty())
      continue;
    memory_.lock()->lookups[key] = {value, clock_.steady()};
    return value;
  }
  return fail(Code::invalid, fmt::format("{} has no {}", provider_.title, lookup.name),
              lookup.missing);
}

// Finds the values that a call needs and that are not set.
Status RestPool::look_up(const Call& call, Values& values) {
  std::set<std::string> used;
  BILLOW_TRY_VOID(collect_names(call.body, used));
  BILLOW_TRY_VOID(collect_names(Json(call.path), used));
  for (const auto& [name, text] : call.query)
    BILLOW_TRY_VOID(collect_names(Json(text), used));
  for (const Lookup& lookup : provider_.lookups) {
    const auto set = values.find(lookup.name);
    if (!used.contains(lookup.name) || (set != values.end() && !set->second.empty()))
      continue;
    values[lookup.name] = BILLOW_TRY(find_value(lookup, values));
  }
  return {};
}

// The cheapest of the present offers that has the GPUs of the order.
Result<MachineOffer> RestPool::choose_offer(const Order& order) {
  const Values values = pool_values();
  const auto set = [&](const char* name) {
    const auto found = values.find(name);
    return found == values.end() ? std::string() : found->second;
  };
  const auto all = BILLOW_TRY(offers());
  const MachineOffer* best = nullptr;
  for (const MachineOffer& offer : all) {
    const bool fits = offer.gpu_type == settings_.gpu_type && offer.gpus == order.machine.gpus &&
                      offer.spot == settings_.spot &&
                      (set("region").empty() || offer.region == set("region")) &&
                      (set("instance").empty() || offer.instance == set("instance"));
    if (fits && (!best || offer.price < best->price))
      best = &offer;
  }
  if (best)
    return *best;
  return fail(Code::exhausted,
              fmt::format("{} offers no {}x{}{}{} at present", provider_.title, order.machine.gpus,
                          settings_.gpu_type, settings_.spot ? " as spot" : "",
                          set("region").empty() ? "" : " in " + set("region")));
}

Result<Values> RestPool::machine_values(const Order& order) {
  Values values = pool_values();
  MachineOffer offer;
  if (order.machine.offer) {
    offer = *order.machine.offer;
  } else if (values["instance"].empty() || (values["region"].empty() && places_differ(provider_))) {
    offer = BILLOW_TRY(choose_offer(order));
  } else {
    offer.instance = values["instance"];
    offer.region = values["region"];
    offer.zone = values["zone"];
    offer.spot = settings_.spot;
    offer.price = settings_.price;
  }
  values["name"] = names_.provider_name(order.machine.name);
  values["machine"] = order.machine.name;
  values["instance"] = offer.instance;
  const auto parts = split(offer.instance, '/');
  for (std::size_t i = 0; i < parts.size() && i < 3; ++i)
    values[fmt::format("instance.{}", i)] = parts[i];
  values["region"] = offer.region;
  values["zone"] = offer.zone;
  values["gpus"] = std::to_string(order.machine.gpus);
  values["gpu_type"] = offer.gpu_type.empty() ? settings_.gpu_type : offer.gpu_type;
  values["spot"] = offer.spot ? "true" : "false";
  if (offer.spot && offer.price.nano_usd_per_s > 0)
    values["bid"] =
        fmt::format("{:.4f}", static_cast<double>(offer.price.nano_usd_per_s) * 3600 / 1e9);
  if (const std::string& option = provider_.disk.option; !option.empty()) {
    std::string& size = values[variable_of(option)];
    size = std::to_string(
        boot_disk_gib(order.machine, parse_int(size, 1, disk_gb_max).value_or(disk_gb_default)));
  }
  values["token"] = order.token;
  values["head_url"] = order.head_url;
  const std::string script = start_script(order, settings_, provider_.boot.kind);
  if (script.size() > provider_.boot.bytes_max)
    return fail(Code::too_large,
                fmt::format("the start-up script has {} bytes; {} accepts at most {}",
                            script.size(), provider_.title, provider_.boot.bytes_max),
                "use fewer or shorter labels");
  values["user_data"] = values["script"] = script;
  values["user_data_base64"] = values["script_base64"] = base64(script);
  values["script_line"] = fmt::format("echo {}|base64 -d|sh", base64(script));
  BILLOW_TRY_VOID(look_up(provider_.create.call, values));
  for (const ExtraObject& object : provider_.objects)
    if (object.create)
      BILLOW_TRY_VOID(look_up(*object.create, values));
  return values;
}

}  // namespace billow::pool::rest
