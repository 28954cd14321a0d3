// Which gateways there are: those that are connected, and those that have gone.
#include <algorithm>

#include "head/gateways/link.h"

namespace billow::head {
namespace {

constexpr std::size_t gone_max = 32;
constexpr Duration gone_shown = hours(24);

}  // namespace

std::size_t Gateways::count() const {
  return links_.size();
}

std::vector<std::string> Gateways::addresses() const {
  std::vector<std::string> out;
  for (const auto& link : links_)
    out.insert(out.end(), link->addresses.begin(), link->addresses.end());
  return out;
}

control::GatewayNames Gateways::names() const {
  control::GatewayNames out;
  for (const auto& link : links_) {
    out.domains.insert(out.domains.end(), link->domains.begin(), link->domains.end());
    if (!link->peer_address.empty())
      out.hosts.push_back(link->peer_address);
  }
  return out;
}

std::string Gateways::fingerprint() const {
  for (const auto& link : links_) {
    if (link->addresses.empty())
      continue;
    const auto colon = link->peer_key.find(':');
    return colon == std::string::npos ? "" : link->peer_key.substr(colon + 1);
  }
  return {};
}

const gateway::EndpointFigures* Gateways::figures(const std::string& endpoint) const {
  const auto found = figures_.find(endpoint);
  return found == figures_.end() ? nullptr : &found->second;
}

gateway::GatewayRow Gateways::row_of(const Link& link) const {
  gateway::GatewayRow row;
  row.region = link.region;
  row.name = link.name;
  row.own = link.own;
  row.id = link.gateway;
  row.version = link.said.version;
  row.host = link.said.host;
  row.addresses = link.addresses;
  row.steers = is_first(link);
  row.leaving = link.said.leaving;
  row.started_at = link.said.started_at;
  row.connected_at = link.connected_at;
  row.seen_at = link.seen_at;
  row.loops = link.said.loops;
  row.connections = link.said.connections;
  row.handed_over = link.said.handed_over;
  row.requests = link.requests;
  row.in_flight = link.in_flight;
  row.figures = link.figures;
  if (link.rate.size() > 1) {
    const auto& [since, before] = link.rate.front();
    const auto& [now, requests] = link.rate.back();
    if (now > since && requests >= before)
      row.requests_per_s = static_cast<double>(requests - before) / (now - since).seconds();
  }
  return row;
}

std::vector<gateway::GatewayRow> Gateways::list() const {
  std::vector<gateway::GatewayRow> out;
  for (const auto& link : links_)
    if (link->socket->open())
      out.push_back(row_of(*link));
  const WallTime now = system_clock().wall();
  for (const gateway::GatewayRow& row : gone_)
    if (now - row.seen_at < gone_shown)
      out.push_back(row);
  return out;
}

// What it has counted stays, also where it never comes back. A successor has its name: it has not
// gone.
void Gateways::remember(Link& link) {
  record_counts(link);
  for (const auto& [endpoint, figures] : link.figures)
    add_up(endpoint);
  if (link.gateway.empty() || std::ranges::any_of(links_, [&](const auto& other) {
        return other->gateway == link.gateway;
      }))
    return;
  gateway::GatewayRow row = row_of(link);
  row.connected = row.steers = false;
  row.figures.clear();
  row.connections = row.in_flight = row.handed_over = 0;
  row.requests_per_s = 0;
  std::erase_if(gone_, [&](const auto& each) { return each.id == row.id; });
  gone_.push_back(std::move(row));
  if (gone_.size() > gone_max)
    gone_.erase(gone_.begin());
}

}  // namespace billow::head
