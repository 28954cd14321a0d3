// A simulated cloud that keeps a meter of its own, in virtual time: it creates slowly, refuses,
// loses requests and answers, hangs, creates twice, lists late and wrongly, and fails to end
// machines. Heads come and go; the provider, its machines and its meter remain.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "head/pools.h"

namespace billow::sim {

class SimProvider {
 public:
  struct Instance {
    std::string name, external, token;
    bool doubled = false;                   // another instance has its name
    WallTime from, to, shown, joins, dies;  // zero: never
    bool joined = false;
    WallTime used;  // last
  };
  // Calls a function after a while.
  using After = std::function<void(Duration, std::function<void()>)>;

  SimProvider(std::uint64_t seed, const std::int64_t* now_ns, After after);

  const MachineOffer& offer() const { return offer_; }
  WallTime now() const { return {1'790'000'000'000'000'000 + *now_ns_}; }
  void pass();       // machines die
  void calm_down();  // no more faults
  void trouble_again() { calm_ = false; }
  std::size_t running() const;
  // Those that no list shows any more; the meter keeps what they cost.
  void forget_ended();
  std::map<std::string, Instance>& instances() { return instances_; }  // by external name
  bool has_late() const { return late_ > 0; }                          // to be created yet
  NanoUsd meter() const;

  // For head::Pools: its requests to this provider, each as long under way as the provider takes.
  std::unique_ptr<pool::Pool> pool();
  std::unique_ptr<head::Pools::Lane> lane();

 private:
  class Requests;
  class VirtualLane;
  pool::Ordered want(const pool::Order& order);
  Result<std::vector<MachineSighting>> nodes();
  Status release(const MachineSighting& machine);
  void create(const pool::Order& order, bool doubled = false);
  void take(Duration time) { took_ = std::max(took_, time); }
  bool fault(double chance) { return !calm_ && rng_.chance(chance); }

  Rng rng_;
  const std::int64_t* now_ns_;
  After after_;
  MachineOffer offer_;
  std::map<std::string, Instance> instances_;
  std::size_t late_ = 0;
  Duration took_;  // by the calls since the last answer
  bool calm_ = false;
  std::uint64_t created_ = 0;
  NanoUsd forgotten_;  // the cost of instances that are forgotten
  NanoUsd cost_of(const Instance& i) const;
};

}  // namespace billow::sim
