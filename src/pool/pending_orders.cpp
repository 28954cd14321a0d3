#include "pool/pending_orders.h"

#include <algorithm>

#include "base/text.h"

namespace billow::pool {
namespace {

constexpr Duration failure_shown = seconds(30);
constexpr Duration delete_again = seconds(30);
constexpr std::size_t note_max = 500;

}  // namespace

void PendingOrders::accepted(PendingOrder order) {
  order.since = clock_.steady();
  auto state = state_.lock();
  state->failures.erase(order.machine);
  state->pending[order.machine] = std::move(order);
}

std::optional<PendingOrder> PendingOrders::find(const std::string& machine) {
  auto state = state_.lock();
  const auto found = state->pending.find(machine);
  if (found == state->pending.end())
    return std::nullopt;
  return found->second;
}

void PendingOrders::settled(const std::string& machine) {
  state_.lock()->pending.erase(machine);
}

std::vector<PendingOrder> PendingOrders::missing(const std::set<std::string>& listed,
                                                 std::size_t max) {
  std::vector<PendingOrder> out;
  {
    auto state = state_.lock();
    for (const auto& [machine, order] : state->pending)
      if (!listed.contains(machine))
        out.push_back(order);
  }
  std::ranges::sort(out, {}, [](const PendingOrder& order) { return order.since; });
  if (out.size() > max)
    out.resize(max);
  return out;
}

void PendingOrders::note_success(const std::string& machine) {
  auto state = state_.lock();
  if (const auto found = state->pending.find(machine); found != state->pending.end())
    found->second.succeeded = true;
}

void PendingOrders::failed(const PendingOrder& order, Refusal refusal) {
  MachineSighting sighting;
  sighting.name = order.machine;
  sighting.external = order.external;
  sighting.note = utf8_prefix(refusal.message, note_max);
  sighting.failed = refusal.kind;
  sighting.ended = true;
  auto state = state_.lock();
  state->pending.erase(order.machine);
  state->failures[order.machine] = {std::move(sighting), clock_.steady()};
}

std::vector<MachineSighting> PendingOrders::failures() {
  const SteadyTime now = clock_.steady();
  auto state = state_.lock();
  std::erase_if(state->failures,
                [&](const auto& entry) { return now - entry.second.at > failure_shown; });
  std::vector<MachineSighting> out;
  for (const auto& [machine, failure] : state->failures)
    out.push_back(failure.sighting);
  return out;
}

bool PendingOrders::may_delete(const std::string& external) {
  const SteadyTime now = clock_.steady();
  auto state = state_.lock();
  std::erase_if(state->deletions,
                [&](const auto& entry) { return now - entry.second >= delete_again; });
  return state->deletions.emplace(external, now).second;
}

void PendingOrders::delete_refused(const std::string& external) {
  state_.lock()->deletions.erase(external);
}

}  // namespace billow::pool
