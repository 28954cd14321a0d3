// The books follow the head's clock, nano-second by nano-second, from the moment a machine is
// ordered. The provider's meter begins and ends at its own moments and counts whole steps. When a
// machine has ended, the difference is booked once, so the books hold what the provider bills.
#include "core/control/renting/bills.h"

#include <algorithm>

namespace billow::control {

NanoUsd provider_amount(NanoUsd per_hour, Duration lasted, Duration minimum, Duration step) {
  std::int64_t ns = std::max({lasted.ns, minimum.ns, std::int64_t{0}});
  if (step.ns > 0)
    ns = (ns + step.ns - 1) / step.ns * step.ns;
  return {static_cast<std::int64_t>(static_cast<__int128>(per_hour.value) * ns / hours(1).ns)};
}

namespace {

// Many providers tell no times. Then the time since the order counts as the books have it: the wall
// clock may have been set meanwhile, and neither the machine nor the books noticed that.
WallTime begin_of(const State& state, const Machine& machine, const MachineEnd& end) {
  if (end.from)
    return end.from;
  if (machine.billed_from)
    return machine.billed_from;
  const WallTime began = state.money.books.began(machine.account);
  return began && !end.told ? end.at - (end.billed - end.ago - began) : machine.wanted_at;
}

}  // namespace

std::optional<MachineBill> machine_bill(const State& state,
                                        const Machine& machine,
                                        const MachineEnd& end) {
  const auto pool = state.pools.find(machine.pool);
  if (!machine.account || pool == state.pools.end())
    return std::nullopt;
  // The price of a disk is in its offer, also if an administrator has set it.
  if (!machine.is_disk() && (state.money.prices.contains("pool:" + pool->second.name) ||
                             state.money.prices.contains("node:" + machine.name)))
    return std::nullopt;
  const MachineOffer offer = machine.offer.value_or(MachineOffer{.price = pool->second.price});
  const NanoUsd per_hour =
      offer.price_h.value > 0 ? offer.price_h : NanoUsd{offer.price.nano_usd_per_s * 3600};
  MachineBill bill{.machine = machine.name,
                   .pool = pool->second.name,
                   .from = begin_of(state, machine, end),
                   .to = end.at,
                   .used = machine.used,
                   .reason = end.reason};
  if (end.existed)
    bill.amount = {
        provider_amount(per_hour, bill.to - bill.from, offer.bill_minimum, offer.bill_step).value *
        std::max<std::uint32_t>(1, machine.nodes)};
  NanoUsd booked = state.money.books.time_cost(machine.account, end.billed);
  for (NodeId node : machine.booked)
    booked += state.money.books.time_cost(node, end.billed);
  bill.correction = bill.amount - booked;
  return bill;
}

}  // namespace billow::control
