// Which requests wait, and who serves them when a slot is free. Those that wait may belong to
// another loop than the one that decides.
#include <fmt/format.h>

#include "gateway/gateway.h"

namespace billow::gateway {
namespace {
// Until a request goes to a region where a replica must be woken for it.
constexpr Duration pass_on_patience = seconds(2);
}  // namespace

void Gateway::hold_or_give(const std::shared_ptr<Front>& front,
                           const std::shared_ptr<LiveEndpoint>& to,
                           ReplicaKey avoid) {
  const auto now = loop_.steady();
  LiveEndpoint& endpoint = *to;
  Ticket& ticket = front->ticket;
  if (pass_on(front, to, {}))
    return;
  if (const std::string why = endpoint.hopeless(now);
      !why.empty() && (ticket.from_peer || !others_may_serve(endpoint))) {
    auto answer = net::problem(
        503, fmt::format("endpoint {} cannot serve: {}", endpoint.name(), why),
        "see `billow endpoints " + endpoint.name() + "` and its logs", front->request_id());
    answer.headers.add("Retry-After", std::to_string(endpoint.retry_after_s(now)));
    return turn_away(front, std::move(answer));
  }
  const auto answer =
      endpoint.router.arrive(ticket.id, now, ticket.arrived + ticket.timeout, avoid, ticket.wish);
  switch (answer.verdict) {
    case Router::Verdict::go:
      if (auto upstream = endpoint.upstream(answer.replica))
        return give(front, to, upstream);
      // Its address is unknown: it gets nothing until that changes, and the next one is tried.
      endpoint.router.finished(answer.replica, now, ticket.id);
      endpoint.unreachable(answer.replica, now);
      return hold_or_give(front, to, answer.replica);
    case Router::Verdict::held:
      break;
    case Router::Verdict::full: {
      ++endpoint.totals.refused;
      auto full =
          net::problem(429,
                       fmt::format("{} requests already wait for endpoint {}",
                                   endpoint.router.held(), endpoint.name()),
                       "retry after the time in Retry-After, or raise --max", front->request_id());
      full.headers.add("Retry-After", std::to_string(endpoint.retry_after_s(now)));
      return turn_away(front, std::move(full));
    }
  }
  held_.emplace(ticket.id, front);
  endpoint.steer(now);
}

// Whether a replica of another region may serve what this region cannot. A gateway that has just
// started has not heard from the others yet: it waits for their first answer before it refuses.
bool Gateway::others_may_serve(const LiveEndpoint& endpoint) const {
  const auto& elsewhere = endpoint.row().elsewhere;
  return !endpoint.awake() && peers_->may_reach([&](const std::string& region) {
    return std::ranges::any_of(elsewhere, [&](const Elsewhere& e) { return e.region == region; });
  });
}

// A request that this region cannot serve now goes to the nearest region with an awake replica, or
// to one that sleeps if ours does not come soon or may not start. It still counts as demand of this
// region, so a replica is woken here.
bool Gateway::pass_on(const std::shared_ptr<Front>& front,
                      const std::shared_ptr<LiveEndpoint>& endpoint,
                      Duration waited) {
  const auto& elsewhere = endpoint->row().elsewhere;
  if (elsewhere.empty() || front->ticket.from_peer || endpoint->awake())
    return false;
  const bool anyone = !endpoint->row().steered || waited > pass_on_patience ||
                      !endpoint->hopeless(loop_.steady()).empty();
  const auto to = peers_->nearest([&](const std::string& region) {
    return std::any_of(elsewhere.begin(), elsewhere.end(), [&](const Elsewhere& e) {
      return e.region == region && (anyone || e.awake > 0);
    });
  });
  if (!to)
    return false;
  endpoint->router.lent(true);
  act(
      front, front->ticket.id, [front, to] { front->give(to); },
      [this, endpoint] {
        const Decision decision(*this);
        endpoint->router.lent(false);
      });
  endpoint->steer(loop_.steady());
  return true;
}

void Gateway::give_out(const std::shared_ptr<LiveEndpoint>& endpoint) {
  if (endpoint->router.held() == 0)
    return;
  if (!endpoint->row().elsewhere.empty() && !endpoint->awake()) {
    std::vector<std::pair<RequestId, SteadyTime>> waiting;
    for (const auto& [id, held] : endpoint->router.queue())
      waiting.emplace_back(id, held.since);
    for (const auto& [id, since] : waiting) {
      const auto found = held_.find(id);
      if (found == held_.end())
        continue;
      const auto front = found->second;
      if (!pass_on(front, endpoint, loop_.steady() - since))
        continue;
      endpoint->router.cancel(id);
      held_.erase(id);
    }
  }
  for (const auto& each : endpoint->router.dispatch(loop_.steady())) {
    const auto found = held_.find(each.request);
    if (found == held_.end()) {
      endpoint->router.finished(each.replica, loop_.steady(), each.request);
      continue;
    }
    const auto front = found->second;
    held_.erase(found);
    hand_to(endpoint, front, each.request, each.replica);
  }
}

// The request has this replica's slot. If its client disconnects before its loop hears of it, the
// slot goes to the next one.
void Gateway::hand_to(const std::shared_ptr<LiveEndpoint>& endpoint,
                      const std::shared_ptr<Front>& front,
                      RequestId id,
                      ReplicaKey replica) {
  act(
      front, id,
      [this, endpoint, front, id, replica] {
        const Decision decision(*this);
        if (const auto upstream = endpoint->upstream(replica))
          return give(front, endpoint, upstream);
        endpoint->router.finished(replica, loop_.steady(), id);
        endpoint->unreachable(replica, loop_.steady());
        hold_or_give(front, endpoint, replica);
      },
      [this, endpoint, id, replica] {
        const Decision decision(*this);
        endpoint->router.finished(replica, loop_.steady(), id);
        give_out(endpoint);
      });
}

void Gateway::refuse_held(LiveEndpoint& endpoint, RequestId id, net::Response response) {
  endpoint.router.cancel(id);
  const auto found = held_.find(id);
  if (found == held_.end())
    return;
  const auto front = found->second;
  held_.erase(found);
  act(front, id, [this, front, response = std::move(response)]() mutable {
    const Decision decision(*this);
    turn_away(front, std::move(response));
  });
}

}  // namespace billow::gateway
