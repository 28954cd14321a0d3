// The audit's part in money: prices, leases, reservations and limits.
#include <fmt/format.h>

#include <algorithm>

#include "audit.h"
#include "core/ledger/meter.h"

namespace billow::sim {

ledger::PriceBook prices() {
  ledger::PriceBook book;
  book.set("H100", PriceClass::on_demand, Rate{830'000});
  book.set("H100", PriceClass::spot, Rate{310'000});
  book.set("H100", PriceClass::reserved, Rate{520'000});
  book.set(ledger::PriceBook::memory_type, PriceClass::suspended, Rate{900});
  return book;
}

// A task at the reserved price uses reserved GPUs, even if it replaces another task.
void Audit::check_inside(const JobStory& job, const Task& task) const {
  if (task.price_class != PriceClass::reserved)
    return;
  const auto r = reservations_.find(job.spec->reservation);
  if (r == reservations_.end())
    broken(fmt::format("task {} starts inside a reservation that is over", task.id.value));
  for (const GpuGrant& g : task.gpus) {
    const bool inside =
        std::any_of(r->second.places.begin(), r->second.places.end(), [&](const ReservedPlace& p) {
          return p.node == task.node &&
                 std::any_of(p.gpus.begin(), p.gpus.end(),
                             [&](const GpuGrant& kept) { return kept.gpu == g.gpu; });
        });
    if (!inside)
      broken(
          fmt::format("task {} pays for its reservation and stands outside of it, on GPU {} of {}",
                      task.id.value, g.gpu, node_names_.at(task.node)));
  }
}

// GPUs of a reservation that has begun are for its own jobs, which start at the reserved price or
// not at all; and a project stays within its limit.
void Audit::check_shared(const JobStory& job, const Task& task, WallTime at) const {
  check_inside(job, task);
  const ReservationId own = job.left_reservation ? ReservationId{} : job.spec->reservation;
  if ((task.price_class == PriceClass::reserved) != static_cast<bool>(own))
    broken(fmt::format("task {} starts at a price nobody asked for", task.id.value));
  for (const auto& [id, r] : reservations_) {
    if (id == own || at < r.from || at >= r.until)
      continue;
    for (const ReservedPlace& place : r.places) {
      for (const GpuGrant& kept : place.gpus) {
        const bool there = place.node == task.node &&
                           std::any_of(task.gpus.begin(), task.gpus.end(),
                                       [&](const GpuGrant& g) { return g.gpu == kept.gpu; });
        if (there)
          broken(fmt::format("task {} takes GPU {} of {}, which is reserved", task.id.value,
                             kept.gpu, node_names_.at(task.node)));
      }
    }
  }
  if (limit_milli_ < 0)
    return;
  std::int64_t milli = 0;
  for (const TaskId id : open_tasks_) {
    const TaskStory& story = tasks_.at(id);
    if (!jobs_.at(story.task.job).running)
      continue;
    for (const GpuGrant& g : story.task.gpus)
      milli += g.share.milli;
  }
  if (milli > limit_milli_ && !task.gpus.empty())
    broken(fmt::format("task {} starts and the project holds {} m of at most {}", task.id.value,
                       milli, limit_milli_));
}

// A job that runs when its reservation ends continues at the on-demand price from exactly that
// moment.
void Audit::rerated(const TaskRerated& e, WallTime billed) {
  TaskStory& story = tasks_.at(e.task);
  world_.trace("journal: task {} goes on at another price", e.task.value);
  if (story.end || !jobs_.at(story.task.job).running ||
      story.task.price_class != PriceClass::reserved)
    broken(fmt::format("task {} gets another price and should not", e.task.value));
  const auto over = reservation_over_.find(story.task.reservation);
  if (over == reservation_over_.end())
    broken(fmt::format("task {} gets another price while its reservation lasts", e.task.value));
  if (!world_.head_clock.stepped && e.lease_to != std::max(over->second, story.task.lease_from))
    broken(
        fmt::format("task {} gets another price at another moment than the end of its reservation",
                    e.task.value));
  const bool right =
      own_prices_ || world_.provider ||
      e.rate == (story.task.gpus.empty() ? Rate{} : prices().rate("H100", PriceClass::on_demand));
  if (e.price_class != PriceClass::on_demand || !right)
    broken(
        fmt::format("task {} goes on at {} nano-dollars a second ({}), which is not the price of "
                    "on-demand work",
                    e.task.value, e.rate.nano_usd_per_s, enum_name(e.price_class)));
  close_lease(story, e.lease_to, e.cost, billed);
  story.task.price_class = e.price_class;
  story.task.rate = e.rate;
}

// No second after the reservation is charged at its price, however late its end became known.
void Audit::check_reserved_price(const Task& task, WallTime to) const {
  if (task.price_class != PriceClass::reserved || world_.head_clock.stepped)
    return;
  const auto live = reservations_.find(task.reservation);
  const auto over = reservation_over_.find(task.reservation);
  const WallTime until = live != reservations_.end() ? live->second.until : over->second;
  if (to > std::max(until, task.lease_from))
    broken(fmt::format("task {} pays the reserved price beyond its reservation", task.id.value));
}

// What began long after it was placed pays from its beginning.
void Audit::task_began(const TaskStarted& e, WallTime billed) {
  TaskStory& story = tasks_.at(e.task);
  if (!e.lease_from)
    return;
  if (story.end || !story.leases.empty() || e.lease_from <= story.task.lease_from ||
      e.lease_from > billed)
    broken(fmt::format("the lease of task {} begins at an impossible time", e.task.value));
  story.task.lease_from = e.lease_from;
}

// Closes the lease at its price; the task's next lease, if any, begins there.
void Audit::close_lease(TaskStory& story, WallTime to, NanoUsd cost, WallTime at) {
  Task& task = story.task;
  check_reserved_price(task, to);
  if (to < task.lease_from || to > at)
    broken(fmt::format("the lease of task {} ends at an impossible time", task.id.value));
  const bool memory = task.price_class == PriceClass::suspended;
  std::int64_t milli = 0;
  for (const GpuGrant& grant : task.gpus)
    milli += grant.share.milli;
  if (cost != amount(task.rate, to - task.lease_from, memory ? task.ram_mib * 1000 / 1024 : milli))
    broken(fmt::format("the lease of task {} costs {} nano-dollars, not what was held",
                       task.id.value, cost.value));
  task.lease_to = to;
  story.leases.push_back(task);
  task.lease_from = to;
  task.lease_to = {};
}

void Audit::check_leases_apart() const {
  struct Change {
    WallTime at;
    std::int64_t milli;
    bool operator<(const Change& o) const {
      return at != o.at ? at < o.at : milli < o.milli;
    }  // at the same moment, ends come first
  };
  std::map<std::pair<NodeId, std::int32_t>, std::vector<Change>> changes;
  for (const auto& [id, story] : tasks_) {
    if (!story.end)
      broken(fmt::format("the lease of task {} was never closed", id.value));
    for (const Task& lease : story.leases) {
      if (lease.lease_to == lease.lease_from || lease.price_class == PriceClass::suspended)
        continue;
      for (const GpuGrant& grant : lease.gpus) {
        auto& list = changes[{lease.node, grant.gpu}];
        list.push_back({lease.lease_from, grant.share.milli});
        list.push_back({lease.lease_to, -grant.share.milli});
      }
    }
  }
  for (auto& [gpu, list] : changes) {
    std::sort(list.begin(), list.end());
    std::int64_t milli = 0;
    for (const Change& change : list)
      if ((milli += change.milli) > whole_gpu_milli)
        broken(fmt::format("GPU {} of node {} is billed twice for the same time", gpu.second,
                           gpu.first.value));
  }
}

}  // namespace billow::sim
