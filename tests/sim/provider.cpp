#include "provider.h"

#include <fmt/format.h>

#include "core/control/renting/bills.h"

namespace billow::sim {
namespace {

MachineOffer some_offer(Rng& rng) {
  MachineOffer o;
  o.instance = "g6.xlarge";
  o.region = "us-1";
  o.zone = "us-1a";
  o.gpu_type = "H100";
  o.gpus = 8;
  o.price_h = {804'800'000};  // does not divide by 3600
  o.price = {o.price_h.value / 3600};
  o.bill_minimum = seconds(rng.chance(0.5) ? 60 : 0);
  o.bill_step = rng.chance(0.3) ? Duration{} : seconds(rng.between(1, 600));
  return o;
}

}  // namespace

class SimProvider::Requests final : public pool::Pool {
 public:
  explicit Requests(SimProvider& provider) : provider_(provider) {}
  pool::Ordered want(const pool::Order& order) override { return provider_.want(order); }
  Result<std::vector<MachineSighting>> nodes() override { return provider_.nodes(); }
  Status release(const MachineSighting& machine) override { return provider_.release(machine); }
  Result<std::vector<MachineOffer>> offers() override { return std::vector{provider_.offer_}; }

 private:
  SimProvider& provider_;
};

// A request reaches the provider after a moment, and its answer comes when the provider says so. A
// head that is gone by then hears nothing.
class SimProvider::VirtualLane final : public head::Pools::Lane {
 public:
  explicit VirtualLane(SimProvider& provider) : provider_(provider) {}
  Status submit(std::function<std::function<void()>()> work) override {
    const std::weak_ptr<int> here = here_;
    const auto reach = [&provider = provider_, here, work = std::move(work)] {
      if (here.expired())
        return;
      provider.took_ = milliseconds(provider.rng_.between(1, 300));
      auto answer = work();
      provider.after_(provider.took_, [here, answer = std::move(answer)] {
        if (!here.expired())
          answer();
      });
    };
    provider_.after_(milliseconds(provider_.rng_.between(0, 100)), reach);
    return {};
  }

 private:
  SimProvider& provider_;
  std::shared_ptr<int> here_ = std::make_shared<int>(0);
};

SimProvider::SimProvider(std::uint64_t seed, const std::int64_t* now_ns, After after)
    : rng_(seed), now_ns_(now_ns), after_(std::move(after)), offer_(some_offer(rng_)) {}

std::unique_ptr<pool::Pool> SimProvider::pool() {
  return std::make_unique<Requests>(*this);
}
std::unique_ptr<head::Pools::Lane> SimProvider::lane() {
  return std::make_unique<VirtualLane>(*this);
}

void SimProvider::pass() {
  for (auto& [external, i] : instances_)
    if (!i.to && i.dies && i.dies <= now())
      i.to = i.dies;
}

void SimProvider::calm_down() {
  calm_ = true;
  for (auto& [external, i] : instances_)
    i.dies = {};
}

NanoUsd SimProvider::cost_of(const Instance& i) const {
  return control::provider_amount(offer_.price_h, i.to - i.from, offer_.bill_minimum,
                                  offer_.bill_step);
}

NanoUsd SimProvider::meter() const {
  NanoUsd sum = forgotten_;
  for (const auto& [external, i] : instances_)
    sum += cost_of(i);
  return sum;
}

std::size_t SimProvider::running() const {
  std::size_t count = 0;
  for (const auto& [external, i] : instances_)
    count += i.to ? 0 : 1;
  return count;
}

void SimProvider::forget_ended() {
  std::erase_if(instances_, [&](const auto& entry) {
    const Instance& i = entry.second;
    if (!i.to || now() - i.to < hours(2))
      return false;
    forgotten_ += cost_of(i);
    return true;
  });
}

pool::Ordered SimProvider::want(const pool::Order& order) {
  const auto refusal = [](RefusalKind kind, const char* why) {
    return std::unexpected(pool::Refusal{kind, why});
  };
  if (!fault(0.45)) {
    create(order);
    if (fault(0.1)) {  // the request was doubled on its way
      ++late_;
      after_(seconds(rng_.between(1, 240)), [this, order] {
        --late_;
        create(order, true);
      });
    }
    return {};
  }
  if (rng_.chance(0.3))
    return refusal(RefusalKind::capacity, "sold out");
  const bool created = rng_.chance(0.6), answered = rng_.chance(0.5);
  if (rng_.chance(0.5)) {  // it hangs
    const Duration hangs = seconds(rng_.between(1, 240));
    take(hangs);
    if (created) {
      ++late_;
      after_(hangs, [this, order] {
        --late_;
        create(order);
      });
    }
  } else if (created) {
    create(order);
  }
  if (created && answered)
    return {};
  return refusal(RefusalKind::no_answer, "no answer");
}

// An order that is repeated makes no second machine. One that was doubled on its way may: whatever
// should have recognized it did not.
void SimProvider::create(const pool::Order& order, bool doubled) {
  const bool twin = doubled && rng_.chance(0.8);
  for (auto& [external, i] : instances_)
    if (i.name == order.machine.name) {
      if (!twin)
        return;
      i.doubled = true;
    }
  Instance i{.name = order.machine.name,
             .token = order.token,
             .doubled = twin,
             .from = now(),
             .used = now()};
  i.external = fmt::format("i-{:06}", ++created_);
  i.shown = now() + seconds(rng_.chance(0.3) ? rng_.between(1, 30) : 0);
  if (calm_ || rng_.chance(0.85))
    i.joins = now() + seconds(rng_.between(5, 200));
  if (fault(0.1))
    i.dies = now() + seconds(rng_.between(5, 1200));
  instances_[i.external] = i;
}

Result<std::vector<MachineSighting>> SimProvider::nodes() {
  pass();
  if (fault(0.02))
    take(seconds(rng_.between(1, 120)));
  if (fault(0.08))
    return fail(Code::unavailable, "the provider does not answer");
  std::vector<MachineSighting> out;
  for (const auto& [external, i] : instances_) {
    const bool omitted = !i.to && (now() < i.shown || fault(0.03));
    if (!omitted && (!i.to || now() - i.to < hours(1)))
      out.push_back({.name = i.name,
                     .external = external,
                     .ended = static_cast<bool>(i.to),
                     .billed_from = i.from,
                     .billed_to = i.to});
  }
  return out;
}

Status SimProvider::release(const MachineSighting& machine) {
  if (fault(0.05))
    take(seconds(rng_.between(1, 120)));
  const bool fails = fault(0.15);
  if (!fails || rng_.chance(0.3)) {
    if (const auto found = instances_.find(machine.external);
        found != instances_.end() && !found->second.to)
      found->second.to = now();
  }
  if (fails)
    return fail(Code::unavailable, "the provider does not answer");
  return {};
}

}  // namespace billow::sim
