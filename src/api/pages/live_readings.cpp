#include "api/pages/live_readings.h"

#include <algorithm>
#include <bit>

#include "base/append_format.h"
#include "base/text.h"
#include "core/ledger/meter.h"
#include "view/fleet_documents.h"

namespace billow::api::streams {
namespace {

using wire::agent_v1::GpuReading;
using wire::agent_v1::Heartbeat;

const GpuReading* reading_of(const Heartbeat* beat, std::size_t gpu) {
  if (!beat)
    return nullptr;
  const auto found = std::find_if(beat->gpus.begin(), beat->gpus.end(), [&](const auto& reading) {
    return static_cast<std::size_t>(reading.gpu) == gpu;
  });
  return found == beat->gpus.end() ? nullptr : &*found;
}

// What is known of a card that does not answer: its score and its fault.
const GpuReading& lost_reading(const GpuReading& r) {
  static thread_local GpuReading unknown;
  unknown = r;
  unknown.util_pct = unknown.temperature_c = -1;
  unknown.mem_used_mib = unknown.power_mw = -1;
  return unknown;
}

// What leases hold of a card, the jobs (as a list of numbers) that the caller may see, and what a
// reservation keeps of the rest.
struct Card {
  std::int64_t milli = 0, reserved_milli = 0;
  std::string jobs;
};

std::vector<Card> cards_of(const control::State& state,
                           const Node& node,
                           const LiveReadings::Visible& visible) {
  std::vector<Card> cards(node.offer.gpus.size());
  const auto on = state.tasks_on.find(node.id);
  if (on == state.tasks_on.end())
    return cards;
  for (const TaskId task_id : on->second) {
    const Task& task = state.tasks.at(task_id);
    if (ledger::gpu_milli(task) == 0)
      continue;  // suspended: its cards are free
    const bool shown = visible(state.jobs.at(task.job).project);
    for (const GpuGrant& grant : task.gpus) {
      const auto gpu = static_cast<std::size_t>(grant.gpu);
      if (gpu >= cards.size())
        continue;
      cards[gpu].milli += grant.share.milli;
      if (shown)
        append_format(cards[gpu].jobs, "{}{}", cards[gpu].jobs.empty() ? "" : ",", task.job.value);
    }
  }
  return cards;
}

void put_gpu(std::string& list,
             std::uint64_t& sent,
             NodeId node,
             std::size_t gpu,
             const Card& card,
             const GpuReading* r) {
  if (r && r->lost)
    r = &lost_reading(*r);
  // Watts and MiB as they are shown, so that noise below a pixel sends nothing.
  const std::int64_t watts = r ? (r->power_mw < 0 ? -1 : r->power_mw / 1000) : -1;
  const std::int64_t mem = r ? r->mem_used_mib : -1;
  std::uint64_t hash = mix(mix(4, static_cast<std::uint64_t>(card.milli)), card.jobs);
  hash = mix(hash, static_cast<std::uint64_t>(card.reserved_milli));
  if (r) {
    for (const std::int64_t figure :
         {static_cast<std::int64_t>(r->util_pct), mem, watts,
          static_cast<std::int64_t>(r->temperature_c), static_cast<std::int64_t>(r->score)})
      hash = mix(hash, static_cast<std::uint64_t>(figure));
    hash = mix(hash, r->fault);
  }
  if (sent == hash)
    return;
  sent = hash;
  append_format(list, "{}[{},{},{},{},{},{},{},{},[{}]", list.empty() ? "" : ",", node.value, gpu,
                card.milli, r ? r->util_pct : -1, mem, watts, r ? r->temperature_c : -1,
                r ? r->score : -1, card.jobs);
  const bool faulty = r && !r->fault.empty();
  if (faulty || card.reserved_milli) {
    list += ',';
    append_json_string(list, faulty ? r->fault : "");
  }
  if (card.reserved_milli)
    append_format(list, ",{}", card.reserved_milli);
  list += ']';
}

// A card whose links nobody reads, or over which nothing goes, is not mentioned.
void put_links(
    std::string& list, std::uint64_t& sent, NodeId node, std::size_t gpu, const GpuReading* r) {
  static const GpuReading nothing;
  if (!r || r->lost)
    r = &nothing;
  std::uint64_t steps = 0;
  for (const std::int64_t kib_s :
       {r->nvlink_tx_kib_s, r->nvlink_rx_kib_s, r->pcie_tx_kib_s, r->pcie_rx_kib_s})
    steps = steps << 8 | traffic_step(kib_s);
  if (sent == steps)
    return;
  sent = steps;
  append_format(list, "{}[{},{},{},{},{},{}]", list.empty() ? "" : ",", node.value, gpu,
                r->nvlink_tx_kib_s, r->nvlink_rx_kib_s, r->pcie_tx_kib_s, r->pcie_rx_kib_s);
}

void put_host(std::string& list, std::uint64_t& sent, NodeId node, const Heartbeat& beat) {
  std::uint64_t hash = mix(mix(5, static_cast<std::uint64_t>(beat.cpu_used_milli / 100)),
                           static_cast<std::uint64_t>(beat.mem_used_mib / 64));
  hash = mix(mix(hash, traffic_step(beat.net_rx_kib_s)), traffic_step(beat.net_tx_kib_s));
  if (sent == hash)
    return;
  sent = hash;
  append_format(list, "{}[{},{},{},{},{}]", list.empty() ? "" : ",", node.value,
                beat.cpu_used_milli, beat.mem_used_mib, beat.net_rx_kib_s, beat.net_tx_kib_s);
}

void put_list(std::string& out, const char* name, const std::string& list) {
  if (!list.empty())
    append_format(out, ",\"{}\":[{}]", name, list);
}

}  // namespace

std::uint64_t traffic_step(std::int64_t kib_s) {
  constexpr std::int64_t least_kib_s = 1024;  // below it a link counts as silent
  if (kib_s < least_kib_s)
    return 0;
  // Four steps for each doubling: the power of two, and the two bits behind its first.
  const auto value = static_cast<std::uint64_t>(kib_s);
  const auto power = static_cast<unsigned>(std::bit_width(value)) - 1;
  return (power - 9) * 4 + ((value >> (power - 2)) & 3);
}

bool LiveReadings::add(std::string& out,
                       const Host& host,
                       const Visible& visible,
                       const Known& known) {
  std::string gpus, links, hosts;
  const control::State& state = host.state();
  const view::ReservedCards reserved = view::reserved_cards(state, host.now());
  for (const auto& [id, node] : state.nodes) {
    if (!known(id))
      continue;
    std::vector<Card> cards = cards_of(state, node, visible);
    const Heartbeat* beat = host.readings(id);
    Sent& sent = sent_[id];
    sent.cards.resize(cards.size());
    sent.links.resize(cards.size());
    for (std::size_t i = 0; i < cards.size(); ++i) {
      const GpuReading* reading = reading_of(beat, i);
      if (!reserved.empty() && !(reading && reading->lost))
        cards[i].reserved_milli =
            view::kept_free(reserved, node, node.offer.gpus[i], cards[i].milli);
      put_gpu(gpus, sent.cards[i], id, i, cards[i], reading);
      put_links(links, sent.links[i], id, i, reading);
    }
    if (beat)
      put_host(hosts, sent.host, id, *beat);
  }
  put_list(out, "gpus", gpus);
  put_list(out, "links", links);
  put_list(out, "hosts", hosts);
  return !gpus.empty() || !links.empty() || !hosts.empty();
}

}  // namespace billow::api::streams
