// What gateways report: figures of endpoints, and what keys have used.
#include <algorithm>

#include "head/gateways/link.h"

namespace billow::head {
namespace {

void add_revisions(std::vector<gateway::RevisionFigures>& sum,
                   const std::vector<gateway::RevisionFigures>& more) {
  for (const auto& each : more) {
    const auto same = std::find_if(sum.begin(), sum.end(),
                                   [&](const auto& s) { return s.revision == each.revision; });
    if (same == sum.end()) {
      sum.push_back(each);
      continue;
    }
    same->requests += each.requests;
    same->errors += each.errors;
    same->first_byte_p95_us = std::max(same->first_byte_p95_us, each.first_byte_p95_us);
  }
}

}  // namespace

// Expired keys are left out of the list for older gateways, which do not look at the date.
void Gateways::add_keys(gateway::EndpointRow& row,
                        const Endpoint& endpoint,
                        const Link& link) const {
  const auto& uses = options_.engine().state().key_uses;
  const WallTime now = system_clock().wall();
  const std::int64_t today = now.ns / hours(24).ns;
  for (const EndpointKey& key : endpoint.keys) {
    if (!key.expires_at || key.expires_at > now)
      row.keys.push_back(key.hash);
    gateway::KeyRow one{.name = key.name,
                        .hash = key.hash,
                        .expires_at = key.expires_at,
                        .limits = key.limits,
                        .elsewhere = {.day = today}};
    const KeyUse first{.day = today, .endpoint = row.name, .key = key.name};
    for (auto at = uses.lower_bound(first);
         at != uses.end() && at->day == today && at->endpoint == row.name && at->key == key.name;
         ++at) {
      if (at->gateway == link.gateway)
        continue;
      one.elsewhere.requests += at->requests;
      one.elsewhere.tokens_in += at->tokens_in;
      one.elsewhere.tokens_out += at->tokens_out;
      one.elsewhere.charge += at->charge;
    }
    row.key_rows.push_back(std::move(one));
  }
}

// What keys have used goes to the journal every few seconds: each report repeats the one before.
void Gateways::record_keys(Link& link, const std::vector<KeyUse>& uses) {
  constexpr Duration every = seconds(5);
  const auto now = loop_.steady();
  if (uses.empty() || (link.keys_recorded_at.ns != 0 && now - link.keys_recorded_at < every))
    return;
  const auto& known = options_.engine().state().key_uses;
  std::vector<KeyUse> news;
  for (const KeyUse& use : uses) {
    const auto found = known.find(use);
    if (found == known.end() || found->requests != use.requests || found->refused != use.refused ||
        found->charge != use.charge || found->tokens_in != use.tokens_in ||
        found->tokens_out != use.tokens_out)
      news.push_back(use);
  }
  if (news.empty())
    return;
  link.keys_recorded_at = now;
  constexpr std::size_t batch = 1000;
  for (std::size_t at = 0; at < news.size(); at += batch)
    run(RecordKeyUses{
        {news.begin() + static_cast<std::ptrdiff_t>(at),
         news.begin() + static_cast<std::ptrdiff_t>(std::min(at + batch, news.size()))}});
}

// How often the counts of endpoints go to the journal; those of a gateway that goes do so at once.
// They would be lost only if the head died in between and the gateway never came back.
void Gateways::record_counts(Link& link) {
  constexpr std::size_t batch = 1000;
  if (link.gateway.empty())
    return;
  link.counts_recorded_at = loop_.steady();
  std::vector<EndpointCount> news = counts_.news(link.gateway);
  for (std::size_t at = 0; at < news.size(); at += batch)
    run(RecordEndpointCounts{
        {news.begin() + static_cast<std::ptrdiff_t>(at),
         news.begin() + static_cast<std::ptrdiff_t>(std::min(at + batch, news.size()))}});
}

void Gateways::take_figures(const std::shared_ptr<Link>& link, const gateway::Figures& report) {
  constexpr Duration counts_every = seconds(30), rate_over = seconds(10);
  const bool moved = link->peer_address != report.peer_address || link->peer_key != report.peer_key;
  link->addresses = report.addresses;
  link->domains = report.domains;
  link->peer_address = report.peer_address;
  link->peer_key = report.peer_key;
  link->gateway = report.gateway;
  if (is_successor(*link))
    return link->socket->close();
  std::erase_if(gone_, [&](const auto& each) { return each.id == link->gateway; });
  link->seen_at = system_clock().wall();
  link->said = report;
  link->said.endpoints.clear();
  link->said.keys.clear();
  record_keys(*link, report.keys);
  link->requests = link->in_flight = 0;
  const auto& known = options_.engine().state().endpoints;
  for (const auto& each : report.endpoints) {
    link->requests += each.requests;
    link->in_flight += each.in_flight;
    if (!known.contains(each.name))
      continue;  // deleted: it has not heard yet
    const bool anew = !link->figures.contains(each.name);
    link->figures[each.name] = each;
    counts_.heard(each, link->gateway.empty() ? link->region : link->gateway, anew);
    add_up(each.name);
  }
  const SteadyTime now = loop_.steady();
  link->rate.emplace_back(now, link->requests);
  while (link->rate.size() > 2 && now - link->rate.front().first > rate_over)
    link->rate.pop_front();
  if (link->counts_recorded_at.ns == 0)
    link->counts_recorded_at = now;
  if (now - link->counts_recorded_at > counts_every)
    record_counts(*link);
  if (moved)
    changed();
}

// Counters are those of all gateways that were ever heard of; of times, the worst is shown; of
// revisions, the one that all have reached.
void Gateways::add_up(const std::string& endpoint) {
  gateway::EndpointFigures sum;
  sum.name = endpoint;
  counts_.add_up(sum);
  if (const auto before = figures_.find(endpoint); before != figures_.end())
    sum.recovered_from = before->second.recovered_from;
  sum.serving = sum.canary = UINT32_MAX;
  for (const auto& link : links_) {
    const auto found = link->figures.find(endpoint);
    if (found == link->figures.end())
      continue;
    const auto& f = found->second;
    sum.serving = std::min(sum.serving, f.serving);
    sum.canary = std::min(sum.canary, f.canary);
    add_revisions(sum.revisions, f.revisions);
    for (const std::string& note : f.notes)
      if (std::find(sum.notes.begin(), sum.notes.end(), note) == sum.notes.end())
        sum.notes.push_back(note);
    sum.held += f.held;
    sum.in_flight += f.in_flight;
    sum.ready += f.ready;
    sum.sleeping += f.sleeping;
    sum.coming += f.coming;
    sum.sick += f.sick;
    sum.wanted += f.wanted;
    sum.first_byte_p50_us = std::max(sum.first_byte_p50_us, f.first_byte_p50_us);
    sum.first_byte_p95_us = std::max(sum.first_byte_p95_us, f.first_byte_p95_us);
    sum.first_byte_p99_us = std::max(sum.first_byte_p99_us, f.first_byte_p99_us);
    sum.held_p99_us = std::max(sum.held_p99_us, f.held_p99_us);
    sum.wake_us = std::max(sum.wake_us, f.wake_us);
    sum.recovered_from = std::max(sum.recovered_from, f.recovered_from);
  }
  if (sum.serving == UINT32_MAX)
    sum.serving = sum.canary = 0;
  figures_[endpoint] = sum;
}

}  // namespace billow::head
