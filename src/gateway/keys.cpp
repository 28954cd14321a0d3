#include "gateway/keys.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/crypto.h"
#include "base/file.h"
#include "base/log.h"
#include "core/wire/codec.h"
#include "gateway/gateway.h"

namespace billow::gateway {
namespace {

struct KeptKeys {
  std::string gateway;
  std::vector<KeptKey> keys;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("gateway", s.gateway);
    v("keys", s.keys);
  }
};

}  // namespace

void Keys::load() {
  if (const auto text = path_.empty() ? Result<std::string>("") : read_file(path_);
      text && !text->empty()) {
    if (auto kept = wire::from_json_text<KeptKeys>(*text)) {
      gateway_ = kept->gateway;
      for (const KeptKey& each : kept->keys)
        meters_[{each.endpoint, each.key}].restore(each.windows);
    } else {
      log_warn("{}: {}; the usage of keys is counted from zero", path_, kept.error().message);
    }
  }
  if (!gateway_.empty())
    return;
  gateway_ = random_token(8);
  changed_ = true;
  save();
}

void Keys::save() {
  if (path_.empty() || !std::exchange(changed_, false))
    return;
  KeptKeys kept{.gateway = gateway_, .keys = {}};
  for (const auto& [name, meter] : meters_)
    kept.keys.push_back({name.first, name.second, meter.saved()});
  disk_.replace(path_, wire::to_json_text(kept));
}

void Keys::hand_over() {
  save();
  for (const auto& [name, meter] : meters_)
    handed_[name] = meter.saved();
}

std::vector<KeptKey> Keys::since_hand_over() const {
  std::vector<KeptKey> out;
  for (const auto& [name, meter] : meters_) {
    const auto before = handed_.find(name);
    out.push_back(
        {name.first, name.second,
         before == handed_.end() ? meter.saved() : used_between(before->second, meter.saved())});
  }
  return out;
}

void Keys::hear_predecessor(const std::vector<KeptKey>& since) {
  for (const KeptKey& each : since) {
    auto& heard = predecessor_[{each.endpoint, each.key}];
    meter(each.endpoint, each.key).add(used_between(heard, each.windows));
    heard = each.windows;
  }
}

std::vector<KeyUse> Keys::report() const {
  std::vector<KeyUse> out;
  for (const auto& [name, meter] : meters_)
    for (const KeyWindow& day : meter.days())
      out.push_back({.day = day.number,
                     .endpoint = name.first,
                     .key = name.second,
                     .gateway = gateway_,
                     .project = {},
                     .requests = day.counts.requests,
                     .refused = day.counts.refused,
                     .tokens_in = day.counts.tokens_in,
                     .tokens_out = day.counts.tokens_out,
                     .charge = day.counts.charge});
  return out;
}

// ---- the gateway's part

std::optional<net::Response> Gateway::count_key(Front& front, const LiveEndpoint& endpoint) {
  Ticket& ticket = front.ticket;
  // A key of another endpoint of the same model counts there, where its limits are.
  const auto owner = find(ticket.key_endpoint.empty() ? endpoint.name() : ticket.key_endpoint);
  const KeyRow* key = owner ? owner->key_named(ticket.key) : nullptr;
  if (!key)
    return std::nullopt;
  // Reserved is the highest price of those that may serve it.
  EndpointPrices prices = endpoint.policy().prices;
  for (const std::string& name : ticket.others)
    if (const auto other = find(name)) {
      const EndpointPrices& its = other->policy().prices;
      prices.request = std::max(prices.request, its.request);
      prices.million_tokens_in = std::max(prices.million_tokens_in, its.million_tokens_in);
      prices.million_tokens_out = std::max(prices.million_tokens_out, its.million_tokens_out);
    }
  const std::string& method = front.head().method;
  ticket.counts_tokens =
      method != "GET" && method != "HEAD" && method != "OPTIONS" &&
      (prices.million_tokens_in.value > 0 || prices.million_tokens_out.value > 0 ||
       std::ranges::any_of(key->limits,
                           [](const KeyLimit& each) { return each.of == LimitOf::tokens; }));
  if (ticket.own_call) {  // it was counted when it arrived, and its tokens count now
    ticket.metered = true;
    return std::nullopt;
  }
  const auto no =
      keys_.meter(owner->name(), key->name)
          .begin(key->limits, prices, key->elsewhere, system_clock().wall(), ticket.reserved);
  if (!no) {
    ticket.metered = true;
    return std::nullopt;
  }
  const auto wait_s = std::max<std::int64_t>(1, (no->wait.ns + 999'999'999) / 1'000'000'000);
  const std::string message = fmt::format("key \"{}\" of endpoint {} has reached its limit of {}",
                                          key->name, owner->name(), limit_text(no->limit));
  auto answer = front.path().starts_with("/v1/")
                    ? api_error(429, "rate_limit_exceeded", message)
                    : net::problem(429, message,
                                   "retry after the time in Retry-After, or ask the endpoint's "
                                   "owner for a higher limit",
                                   front.request_id());
  answer.headers.add("Retry-After", std::to_string(wait_s));
  return answer;
}

// A request that no replica has answered well costs nothing.
void Gateway::charge_key(const LiveEndpoint& endpoint, Ticket& ticket, End end) {
  if (!std::exchange(ticket.metered, false))
    return;
  const bool served =
      ticket.first_byte.ns != 0 && end != End::replica_failed && ticket.status < 500;
  EndpointPrices prices = endpoint.policy().prices;
  if (ticket.own_call)
    prices.request = {};  // charged when it arrived
  const std::string& owner = ticket.key_endpoint.empty() ? endpoint.name() : ticket.key_endpoint;
  ticket.charge = keys_.meter(owner, ticket.key)
                      .end(ticket.reserved, prices,
                           {.charged = served || ticket.status == 202,
                            .tokens_in = ticket.usage.in,
                            .tokens_out = ticket.usage.out},
                           system_clock().wall());
}

void Gateway::end_streams_of(std::set<KeyHash> keys) {
  if (keys.empty())
    return;
  each_proxy([keys = std::move(keys)](Proxy& proxy) {
    proxy.end_streams([&](const Ticket& ticket) {
      const auto endpoint = std::static_pointer_cast<LiveEndpoint>(ticket.endpoint);
      return endpoint && ticket.offered &&
             keys.contains({ticket.key_endpoint.empty() ? endpoint->name() : ticket.key_endpoint,
                            ticket.offered->hash});
    });
  });
}

void Gateway::end_streams_of_expired() {
  const WallTime now = system_clock().wall();
  std::set<KeyHash> expired;
  for (const auto& [name, endpoint] : endpoints_)
    for (const KeyRow& key : endpoint->row().key_rows)
      if (key.expires_at > expired_until_ && key.expires_at <= now)
        expired.emplace(name, key.hash);
  expired_until_ = now;
  end_streams_of(std::move(expired));
}

}  // namespace billow::gateway
