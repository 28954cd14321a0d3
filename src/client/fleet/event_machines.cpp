// Sentences of nodes, pools, machines and reservations.
#include "base/money.h"
#include "base/relative_time.h"
#include "base/text.h"
#include "client/fleet/event_sentences.h"
#include "client/frame/table.h"

namespace billow::client {
namespace {

std::string on_head_started(const EventReader& r) {
  return fmt::format("the head started, version {}", r.text("version"));
}

std::string on_node_joined(const EventReader& r) {
  const Json& node = r.body["node"];
  const std::string name(node.at("offer", "name").str_or("?"));
  r.names.nodes[node["id"].uint_or(0)] = name;
  return fmt::format("{} joined with {}", name,
                     how_many(node.at("offer", "gpus").items().size(), "GPU"));
}

std::string on_node_offer_changed(const EventReader& r) {
  const Json& offer = r.body["offer"];
  return fmt::format("{} now offers {}, {:g} CPUs and {} of memory", r.node(),
                     how_many(offer["gpus"].items().size(), "GPU"),
                     static_cast<double>(offer["cpu_milli"].int_or(0)) / 1000,
                     mebibytes(offer["mem_mib"].int_or(0)));
}

std::string on_node_reachable(const EventReader& r) {
  return r.node() + " answers again";
}

std::string on_node_unreachable(const EventReader& r) {
  return r.node() + " does not answer";
}

std::string on_node_drained(const EventReader& r) {
  return r.text("reason", "").empty()
             ? r.node() + " accepts jobs again"
             : fmt::format("{} accepts no new jobs{}", r.node(), r.because());
}

std::string on_gpu_drained(const EventReader& r) {
  return fmt::format("GPU {} of {} {}{}", r.body["gpu"].int_or(0), r.node(),
                     r.text("reason", "").empty() ? "accepts jobs again" : "accepts no new jobs",
                     r.because());
}

std::string on_node_removed(const EventReader& r) {
  return r.node() + " was removed";
}

std::string on_node_released(const EventReader& r) {
  return fmt::format("{} was released{}", r.node(), r.because());
}

std::string on_node_price_set(const EventReader& r) {
  return fmt::format("{} costs {} from now on", r.node(),
                     format_rate_per_hour({r.body["rate"].int_or(0)}));
}

std::string on_meter_marked(const EventReader& r) {
  return fmt::format("{} reported the usage of {}", r.node(),
                     how_many(r.body["marks"].items().size(), "task"));
}

// ---- pools and their machines
std::string on_pool_added(const EventReader& r) {
  const Json& pool = r.body["pool"];
  r.names.pools[pool["id"].uint_or(0)] = std::string(pool["name"].str_or("?"));
  return fmt::format("pool {} added ({}), at most {}", pool["name"].str_or("?"),
                     pool["kind"].str_or("command"),
                     how_many(pool["machines_max"].uint_or(1), "machine"));
}

std::string on_pool_removed(const EventReader& r) {
  return fmt::format("pool {} was removed", r.pool());
}

std::string on_pool_denied(const EventReader& r) {
  if (r.body["removing"].bool_or(false) || r.body["until_ns"].int_or(0) == INT64_MAX)
    return fmt::format("pool {} is being removed and orders no more machines", r.pool());
  return fmt::format("pool {} was refused a machine{}", r.pool(), r.because());
}

std::string on_pool_offers_set(const EventReader& r) {
  return fmt::format("pool {} has {}", r.pool(), how_many(r.body["offers"].size(), "offer"));
}

std::string on_pool_stopped(const EventReader& r) {
  return fmt::format("pool {0} orders no machines until `billow pool retry {0}`{1}", r.pool(),
                     r.because());
}

std::string on_pool_retried(const EventReader& r) {
  return fmt::format("pool {} may order machines again", r.pool());
}

std::string on_offer_refused(const EventReader& r) {
  const Json& refusal = r.body["refusal"];
  const Json& offer = refusal["offer"];
  return fmt::format("pool {} was refused {}{}{}: {}", r.pool(), offer["instance"].str_or("?"),
                     offer["region"].str_or("").empty() ? "" : " in ", offer["region"].str_or(""),
                     refusal["reason"].str_or("?"));
}

std::string on_machine_wanted(const EventReader& r) {
  return fmt::format(
      "machine {} ordered{}",
      r.body["machine"].is_object() ? r.body.at("machine", "name").str_or("?") : r.text("machine"),
      r.because("why"));
}

std::string on_machine_seen(const EventReader& r) {
  const auto external = r.text("external", ""), note = r.text("note", "");
  return fmt::format("the provider lists machine {}{}{}", r.text("machine"),
                     external.empty() ? std::string() : fmt::format(" as {}", external),
                     note.empty() ? std::string() : fmt::format(": {}", note));
}

std::string on_machine_released(const EventReader& r) {
  return fmt::format("machine {} is being released{}", r.text("machine"), r.because());
}

std::string on_machine_gone(const EventReader& r) {
  return fmt::format("machine {} has ended{}", r.text("machine"), r.because());
}

// ---- reservations
std::string on_reservation_made(const EventReader& r) {
  const Json& made = r.body["reservation"];
  std::size_t gpus = 0;
  for (const Json& place : made["places"].items())
    gpus += place["gpus"].items().size();
  const auto at = [&](const char* member) {
    return relative_time(WallTime{made[member].int_or(0)}, r.now, Zone::local);
  };
  r.names.reservations[made["id"].uint_or(0)] = std::string(made["name"].str_or(""));
  return fmt::format(
      "reservation {}{} made for project {}: {}; start: {}; end: {}", made["id"].uint_or(0),
      made["name"].str_or("").empty() ? std::string()
                                      : fmt::format(" ({})", made["name"].str_or("")),
      r.project_of(made["project"]), how_many(gpus, "GPU"), at("from_ns"), at("until_ns"));
}

std::string on_reservation_moved(const EventReader& r) {
  return fmt::format(
      "{} got other GPUs, because a node is gone",
      EventReader::quoted(r.names.reservations, r.body["reservation"], "reservation"));
}

std::string on_reservation_ended(const EventReader& r) {
  const std::int64_t unused = r.body["unused"].int_or(0);
  return fmt::format(
      "{} ended{}{}",
      EventReader::quoted(r.names.reservations, r.body["reservation"], "reservation"), r.because(),
      unused ? fmt::format("; {} for unused time", usd_text(r.body["unused"])) : std::string());
}

}  // namespace

void add_machine_sentences(EventSentences& into) {
  into.insert({{"head_started", on_head_started},
               {"node_joined", on_node_joined},
               {"node_offer_changed", on_node_offer_changed},
               {"node_reachable", on_node_reachable},
               {"node_unreachable", on_node_unreachable},
               {"node_drained", on_node_drained},
               {"gpu_drained", on_gpu_drained},
               {"node_removed", on_node_removed},
               {"node_released", on_node_released},
               {"node_price_set", on_node_price_set},
               {"meter_marked", on_meter_marked},
               {"pool_added", on_pool_added},
               {"pool_removed", on_pool_removed},
               {"pool_denied", on_pool_denied},
               {"pool_offers_set", on_pool_offers_set},
               {"pool_stopped", on_pool_stopped},
               {"pool_retried", on_pool_retried},
               {"offer_refused", on_offer_refused},
               {"machine_wanted", on_machine_wanted},
               {"machine_seen", on_machine_seen},
               {"machine_released", on_machine_released},
               {"machine_gone", on_machine_gone},
               {"reservation_made", on_reservation_made},
               {"reservation_moved", on_reservation_moved},
               {"reservation_ended", on_reservation_ended}});
}

}  // namespace billow::client
