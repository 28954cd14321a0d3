// Reading the head's documents. Whatever they hold, nothing here fails: a member that is missing or
// of another kind leaves the figure unknown.
#include <algorithm>

#include <fmt/format.h>

#include "base/formats/utc.h"
#include "client/request/job_list.h"
#include "client/top/fleet.h"

namespace billow::client::top {
namespace {

constexpr std::int64_t micro = 1000;  // nano-dollars
constexpr int stale_samples_max = 3;

std::string text_of(const Json& value) {
  return std::string(value.str_or(""));
}
std::int64_t ms_of(const Json& utc) {
  return utc_or_zero(utc.str_or("")).ns / 1'000'000;
}

void read_node(Fleet& fleet, const Json& n) {
  NodeEntry& node = fleet.nodes[n["id"].uint_or(0)];
  node.id = n["id"].uint_or(0);
  node.stale = 0;
  node.name = text_of(n["name"]);
  node.state = text_of(n["state"]);
  node.reason = text_of(n["reason"]);
  node.cpu_milli = n["cpu_milli"].int_or(0);
  node.mem_mib = n["mem_mib"].int_or(0);
  node.cards.resize(n["gpus"].items().size());
  for (std::size_t i = 0; i < node.cards.size(); ++i) {
    const Json& g = n["gpus"].items()[i];
    Card& card = node.cards[i];
    card.type = text_of(g["type"]);
    card.model = text_of(g["model"]);
    card.uuid = text_of(g["uuid"]);
    card.trouble = text_of(g["unhealthy"]);
    card.mem_mib = g["mem_mib"].int_or(0);
  }
}

// [node, index, milli, busy %, memory MiB, watts, °C, score, [jobs], fault, reserved]
void read_card(Fleet& fleet, const Json& r) {
  const auto& v = r.items();
  if (v.size() < 9)
    return;
  const auto node = fleet.nodes.find(v[0].uint_or(0));
  const std::int64_t index = v[1].int_or(-1);
  if (node == fleet.nodes.end() || index < 0 || index >= std::ssize(node->second.cards))
    return;
  Card& card = node->second.cards[static_cast<std::size_t>(index)];
  card.milli = v[2].int_or(0);
  card.util = v[3].int_or(-1);
  card.mem = v[4].int_or(-1);
  card.watts = v[5].int_or(-1);
  card.celsius = v[6].int_or(-1);
  card.score = v[7].int_or(-1);
  card.jobs.clear();
  for (const Json& id : v[8].items())
    if (std::ranges::find(card.jobs, id.uint_or(0)) == card.jobs.end())
      card.jobs.push_back(id.uint_or(0));
  card.fault = v.size() > 9 ? text_of(v[9]) : "";
  card.reserved = v.size() > 10 ? v[10].int_or(0) : 0;
}

void read_summary(Fleet& fleet, const Json& s) {
  fleet.running = s["running"].int_or(0);
  fleet.queued = s["queued"].int_or(0);
  fleet.held = s["held"].int_or(0);
  fleet.suspended = s["suspended"].int_or(0);
  fleet.spend_nano = s["spend_nano"].int_or(0);
  fleet.idle_nano = s["idle_nano"].int_or(0);
  fleet.store = std::string(s["store"].str_or("ok"));
  fleet.idle_jobs.clear();
  for (const Json& id : s["idle_jobs"].items())
    fleet.idle_jobs.insert(id.uint_or(0));
}

// What the stream and the document of a job call the same.
JobEntry read_job(const Json& d) {
  JobEntry job;
  job.id = d["id"].uint_or(0);
  job.label = text_of(d["label"]);
  job.name = name_of(d);
  job.command = text_of(d["command"]);
  job.user = text_of(d["user"]);
  job.project = text_of(d["project"]);
  job.state = text_of(d["state"]);
  return job;
}

// The document of a job that has ended, as a row.
JobEntry read_ended(const Json& d) {
  JobEntry job = read_job(d);
  job.reason = text_of(d.at("exit", "text"));
  if (job.reason.empty())
    job.reason = text_of(d["reason"]);
  job.gpu_milli = d["gpus"].int_or(0) ? d["gpu_milli"].int_or(1000) * d["nodes"].int_or(1) : 0;
  job.ran = d["ran_s"].int_or(0) * 1000;
  job.cost_nano = d["cost_nano_usd"].int_or(0);
  job.ended = std::max<std::int64_t>(1, ms_of(d["ended_at"]));
  return job;
}

}  // namespace

JobEntry read_live_job(const Json& j) {
  JobEntry job = read_job(j);
  job.reason = text_of(j["reason"]);
  job.gpu_milli = j["gpu_milli"].int_or(0);
  job.spot = j["spot"].bool_or(false);
  job.submitted = j["submitted"].int_or(0);
  job.started = j["started"].int_or(0);
  job.since = j["since"].int_or(0);
  job.ran = j["ran"].int_or(-1);
  job.suspended = j["suspended"].int_or(0);
  job.cost_nano = j["cost_nano"].int_or(0);
  job.rate_nano = j["rate_nano"].int_or(0);
  job.at = j["at"].int_or(0);
  // The row of an array says so only by what it lacks: it has neither attempt nor time.
  job.array = j["attempt"].int_or(1) == 0 && job.at == 0;
  for (const Json& place : j["where"].items()) {
    std::vector<std::int64_t> cards;
    for (std::size_t i = 1; i < place.items().size(); ++i)
      cards.push_back(place.items()[i].int_or(0));
    if (!place.items().empty())
      job.where.emplace_back(place.items()[0].uint_or(0), std::move(cards));
  }
  return job;
}

// What is shown stays until the new stream has had time to repeat it, so that neither the cursor
// nor the last minutes of a figure are lost.
void Fleet::begin_again() {
  for (auto& [id, node] : nodes)
    node.stale = 1;
  for (auto& [id, job] : jobs)
    job.stale = 1;
}

void Fleet::take(const Json& piece) {
  for (const Json& row : piece["jobs"].items())
    jobs[row["id"].uint_or(0)] = read_live_job(row);
  for (const Json& id : piece["gone"].items())
    jobs.erase(id.uint_or(0));
  for (const Json& document : piece["ended"].items())
    ended.push_front(read_ended(document));
  if (ended.size() > ended_max)
    ended.resize(ended_max);
  for (const Json& node : piece["nodes"].items())
    read_node(*this, node);
  for (const Json& id : piece["nodes_gone"].items())
    nodes.erase(id.uint_or(0));
  for (const Json& reading : piece["gpus"].items())
    read_card(*this, reading);
  for (const Json& h : piece["hosts"].items()) {
    const auto& v = h.items();
    const auto node = v.empty() ? nodes.end() : nodes.find(v[0].uint_or(0));
    if (node == nodes.end() || v.size() < 3)
      continue;
    node->second.cpu_used = v[1].int_or(-1);
    node->second.mem_used = v[2].int_or(-1);
  }
  if (const Json* summary = piece.find("summary")) {
    read_summary(*this, *summary);
    complete = true;
  }
}

void Fleet::take_endpoints(const Json& answer, std::int64_t now_ms) {
  std::map<std::string, EndpointEntry> seen;
  for (const Json& e : answer["endpoints"].items()) {
    const std::string name = text_of(e["name"]);
    EndpointEntry entry;
    if (const auto known = endpoints.find(name); known != endpoints.end())
      entry = std::move(known->second);
    const std::int64_t requests = e.at("figures", "requests").int_or(0);
    if (entry.requests_seen >= 0 && now_ms > entry.seen_ms)
      entry.requests.add(std::max<std::int64_t>(0, requests - entry.requests_seen) * 10'000 /
                         (now_ms - entry.seen_ms));
    entry.name = name;
    entry.requests_seen = requests;
    entry.seen_ms = now_ms;
    entry.document = e;
    seen[name] = std::move(entry);
  }
  endpoints = std::move(seen);
  endpoints_known = true;
}

void Fleet::take_reservations(const Json& answer) {
  reservations.clear();
  for (const Json& r : answer["reservations"].items())
    for (const Json& place : r["places"].items()) {
      HeldCards held{text_of(r["project"]), text_of(r["name"]), text_of(place["node"]), {},
                     ms_of(r["from"]),      ms_of(r["until"])};
      for (const Json& gpu : place["gpus"].items())
        held.gpus.push_back(gpu.int_or(-1));
      reservations.push_back(std::move(held));
    }
}

void Fleet::take_queue(const Json& answer) {
  why.clear();
  for (const Json& job : answer["jobs"].items())
    if (const auto reason = job["reason"].str_or(""); !reason.empty())
      why[job["id"].uint_or(0)] = reason;
}

// The last minutes before this screen was opened.
void Fleet::take_fleet_history(const Json& answer) {
  const auto fill = [&](Trail& trail, const Json& values, double scale) {
    Trail before;
    const double repeat = answer["step_s"].double_or(10) / sample_every.seconds();
    double due = 0;
    for (const Json& value : values.items())
      for (due += repeat; due >= 1; --due)
        before.add(value.is_number() ? static_cast<std::int64_t>(value.double_or(0) * scale) : -1);
    for (const double value : trail.newest())
      before.add(value >= 0 ? static_cast<std::int64_t>(value) : -1);
    trail = std::move(before);
  };
  fill(busy, answer.at("series", "util_pct"), 1);
  fill(spend, answer.at("series", "spend_usd_per_h"), 1e6 / 3600);
}

void Fleet::take_status(const Json& answer) {
  const Json& about = answer["you"];
  if (!about.is_object())
    return;
  you = {true, text_of(about["user"]), text_of(about["role"]), text_of(about["scope"]), {}};
  for (const Json& each : about["permissions"].items())
    you.permissions.insert(text_of(each));
}

void Fleet::sample() {
  std::int64_t sum = 0, known = 0;
  for (auto& [id, node] : nodes) {
    std::int64_t node_sum = 0, node_known = 0;
    const bool away = node.state == "unreachable";
    for (Card& card : node.cards) {
      const std::int64_t util = away ? -1 : card.util;
      card.busy.add(util);
      card.memory.add(away || card.mem < 0 || card.mem_mib <= 0 ? -1
                                                                : card.mem * 100 / card.mem_mib);
      if (util >= 0) {
        node_sum += util;
        ++node_known;
      }
    }
    node.busy.add(node_known ? node_sum / node_known : -1);
    sum += node_sum;
    known += node_known;
  }
  const auto age = [](auto& entries) {
    for (auto& [id, entry] : entries)
      entry.stale += entry.stale > 0;
    std::erase_if(entries, [](const auto& e) { return e.second.stale > stale_samples_max; });
  };
  age(nodes);
  age(jobs);
  busy.add(known ? sum / known : -1);
  spend.add(complete ? spend_nano / micro : -1);
}

}  // namespace billow::client::top
