// Makes one pool do what a test tells it, without a head: a JSON document a line on standard input,
// an answer a line on standard output. The first line has the pool's settings:
//   {"kind": "gce", "name": "fast", "options": {…}, "spot": false, "installation": "ab12cd34"}
// then {"do": "want", "machine": "fast-1", "offer": {…}}, {"do": "nodes"}, {"do": "offers"},
// {"do": "release", "machine": …, "external": …}, {"do": "account"}, {"do": "attach", "machine": …,
// "disk": …}. An order with "disk_gib" is a cache disk. "threads": 8 wants as many
// machines at once: fast-1.1 … are named by "machines".
#include <fmt/format.h>

#include <iostream>
#include <thread>

#include "base/json.h"
#include "pool/kinds.h"

namespace billow {
namespace {

std::string text(const Json& json, std::string_view key) {
  return std::string(json[key].str_or(""));
}

std::optional<MachineOffer> offer_of(const Json& json) {
  if (!json.is_object())
    return std::nullopt;
  MachineOffer offer;
  offer.instance = text(json, "instance");
  offer.region = text(json, "region");
  offer.zone = text(json, "zone");
  offer.spot = json["spot"].bool_or(false);
  offer.gpus = static_cast<std::int32_t>(json["gpus"].int_or(0));
  offer.reservation = text(json, "reservation");
  offer.fabric = text(json, "fabric");
  return offer;
}

Json json_of(const MachineOffer& offer) {
  return Json::object({{"instance", offer.instance},
                       {"region", offer.region},
                       {"zone", offer.zone},
                       {"spot", offer.spot},
                       {"gpu_type", offer.gpu_type},
                       {"gpus", offer.gpus},
                       {"cpus", offer.cpus},
                       {"memory_mib", offer.memory_mib},
                       {"price", offer.price.nano_usd_per_s},
                       {"priced_at", offer.priced_at.ns}});
}

Json json_of(const Error& error) {
  return Json::object(
      {{"error", code_name(error.code)}, {"message", error.message}, {"hint", error.hint}});
}

Json want(pool::Pool& pool, const std::string& machine, const Json& ask) {
  pool::Order order;
  order.machine.name = machine;
  order.machine.offer = offer_of(ask["offer"]);
  order.machine.gpus = static_cast<std::int32_t>(ask["gpus"].int_or(0));
  order.machine.nodes = static_cast<std::uint32_t>(ask["nodes"].int_or(1));
  order.machine.disk_mib = ask["disk_mib"].int_or(0);
  order.machine.volume_gib = ask["disk_gib"].int_or(0);
  order.machine.cache = text(ask, "cache");
  order.head_url = "https://head.example:7070";
  order.token = "bwj_secret." + std::string(ask["token"].str_or("abcd"));
  const pool::Ordered made = pool.want(order);
  if (made)
    return Json::object({{"machine", machine}, {"ordered", true}});
  return Json::object({{"machine", machine},
                       {"refused", enum_name(made.error().kind)},
                       {"message", made.error().message}});
}

// All at once, as the head does it.
Json want_many(pool::Pool& pool, const Json& ask) {
  const Json::Array& names = ask["machines"].items();
  std::vector<Json> results(names.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < names.size(); ++i)
    threads.emplace_back(
        [&, i] { results[i] = want(pool, std::string(names[i].str_or("")), ask); });
  for (std::thread& thread : threads)
    thread.join();
  Json out = Json::array();
  for (Json& result : results)
    out.push(std::move(result));
  return out;
}

Json nodes(pool::Pool& pool) {
  const auto listed = pool.nodes();
  if (!listed)
    return json_of(listed.error());
  Json out = Json::array();
  for (const MachineSighting& seen : *listed) {
    Json one = Json::object({{"machine", seen.name},
                             {"external", seen.external},
                             {"note", seen.note},
                             {"ends_at", seen.ends_at.ns},
                             {"ended", seen.ended}});
    if (seen.attached)
      one.set("attached", true);
    if (seen.failed)
      one.set("failed", enum_name(*seen.failed));
    out.push(std::move(one));
  }
  return out;
}

Json offers(pool::Pool& pool) {
  const auto listed = pool.offers();
  if (!listed)
    return json_of(listed.error());
  Json out = Json::array();
  for (const MachineOffer& offer : *listed)
    out.push(json_of(offer));
  return out;
}

Json account(pool::Pool& pool) {
  const auto found = pool.account();
  if (!found)
    return json_of(found.error());
  Json problems = Json::array();
  for (const std::string& problem : found->problems)
    problems.push(problem);
  return Json::object({{"id", found->id},
                       {"identity", found->identity},
                       {"source", found->source},
                       {"problems", std::move(problems)}});
}

Json act(pool::Pool& pool, const Json& ask) {
  const std::string verb = text(ask, "do");
  if (verb == "want")
    return ask["machines"].is_array() ? want_many(pool, ask)
                                      : want(pool, text(ask, "machine"), ask);
  if (verb == "nodes")
    return nodes(pool);
  if (verb == "offers")
    return offers(pool);
  if (verb == "account")
    return account(pool);
  MachineSighting machine;
  machine.name = text(ask, "machine");
  machine.external = text(ask, "external");
  if (verb == "attach") {
    const auto listed = pool.nodes();
    if (!listed)
      return json_of(listed.error());
    MachineSighting disk;
    for (const MachineSighting& seen : *listed) {
      machine = seen.name == machine.name ? seen : machine;
      disk = seen.name == text(ask, "disk") ? seen : disk;
    }
    const Status done = pool.attach(machine, disk);
    return done ? Json::object({{"done", true}}) : json_of(done.error());
  }
  const Status released = pool.release(machine);
  return released ? Json::object({{"released", true}}) : json_of(released.error());
}

int run() {
  std::string line;
  if (!std::getline(std::cin, line))
    return 2;
  const auto setup = parse_json(line);
  if (!setup)
    return 2;
  Pool settings;
  settings.name = text(*setup, "name");
  settings.kind = text(*setup, "kind");
  settings.spot = (*setup)["spot"].bool_or(false);
  settings.cache_gib = (*setup)["cache_gib"].int_or(0);
  for (const auto& [key, value] : (*setup)["options"].members())
    settings.options[key] = value.str_or("");
  if (const Status complete = pool::complete_new_pool(settings); !complete) {
    std::cout << json_of(complete.error()).dump() << std::endl;
    return 1;
  }
  const auto made =
      pool::make_pool(settings, {.installation = text(*setup, "installation"), .work_dir = "/tmp"});
  std::cout << Json::object({{"ready", made.has_value()}}).dump() << std::endl;
  while (made && std::getline(std::cin, line))
    if (const auto ask = parse_json(line))
      std::cout << act(**made, *ask).dump() << std::endl;
  return 0;
}

}  // namespace
}  // namespace billow

int main() {
  return billow::run();
}
