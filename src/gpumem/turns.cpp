// Runs the arbiter: reads the jobs' pages, asks the pure core, writes gate words and sends DRAIN.
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <optional>

#include "gpumem/service.h"
#include "gpumem/steady.h"

namespace billow::gpumem {

void Service::arbitrate() {
  while (!stop_) {
    bool contended = false;
    {
      const std::lock_guard guard(lock_);
      arbiter_round(steady_ns());
      for (auto& entry : arbiters_)
        contended |= entry.second.contended();
    }
    std::this_thread::sleep_for(contended ? std::chrono::microseconds(100)
                                          : std::chrono::microseconds(5000));
  }
}

namespace {

// What the processes of a job do now, from the pages they share with this service.
Arbiter::Seen seen_of(const Job& job) {
  Arbiter::Seen seen;
  // A suspended job's waiting threads wait for its memory, not for a turn.
  if (job.phase != JobPhase::running)
    return seen;
  for (const auto& slot : job.usage->slots) {
    if (!slot.pid)
      continue;
    seen.uses_gpu |= __atomic_load_n(&slot.contexts, __ATOMIC_RELAXED) > 0;
    seen.waiting |= __atomic_load_n(&slot.waiters, __ATOMIC_RELAXED) > 0;
    seen.launches += __atomic_load_n(&slot.launches, __ATOMIC_RELAXED);
    seen.passed_ns =
        std::max(seen.passed_ns,
                 static_cast<std::int64_t>(__atomic_load_n(&slot.passed_ns, __ATOMIC_RELAXED)));
  }
  return seen;
}

// Takes the answers to DRAIN that have come. The result: when the job's last process came to rest,
// once all of them have answered or closed their link.
std::optional<std::int64_t> drained_at(Job& job, std::int64_t now_ns) {
  if (job.draining.empty())
    return std::nullopt;
  std::int64_t rested_ns = 0;
  for (auto d = job.draining.begin(); d != job.draining.end();) {
    Answer answer;
    if (d->first->closed()) {
      d = job.draining.erase(d);
    } else if (d->first->poll(d->second, answer)) {
      rested_ns = std::max(rested_ns, static_cast<std::int64_t>(answer.head.arg0));
      d = job.draining.erase(d);
    } else {
      ++d;
    }
  }
  if (!job.draining.empty())
    return std::nullopt;
  // The shim reads the same clock; its value is used if it is recent.
  const bool plausible = rested_ns <= now_ns && now_ns - rested_ns < 100'000'000;
  return plausible ? rested_ns : now_ns;
}

// Asks the processes of a job that use the GPU to come to rest. False: there are none.
bool ask_to_drain(Job& job) {
  job.limit->turn++;
  for (auto& link : job.links)
    if (job.usage->slots[link->slot].contexts && !job.draining.contains(link.get()))
      if (const auto sent = link->send(BILLOW_DRAIN, job.limit->turn))
        job.draining[link.get()] = *sent;
  return !job.draining.empty();
}

void set_gate(Job& job, std::uint32_t word) {
  __atomic_store_n(&job.limit->gate, word, __ATOMIC_SEQ_CST);
  syscall(SYS_futex, &job.limit->gate, FUTEX_WAKE, 0x7fffffff, nullptr, nullptr, 0);
}

}  // namespace

// For each GPU: what its jobs do now goes into the arbiter, and its decision comes out as gate
// words and new DRAIN messages.
void Service::arbiter_round(std::int64_t now_ns) {
  for (auto& [key, arbiter] : arbiters_) {
    std::map<Arbiter::Id, Job*> by_id;
    for (auto& entry : jobs_) {
      Job& job = *entry.second;
      const bool here =
          std::any_of(job.spec.devices.begin(), job.spec.devices.end(),
                      [&](const DeviceLimit& d) { return !std::memcmp(d.uuid, key.data(), 16); });
      if (!here)
        continue;
      by_id[job.tenant] = &job;
      arbiter.see(job.tenant, seen_of(job), now_ns);
      const std::lock_guard guard(job.lock);
      if (const auto at = drained_at(job, now_ns))
        arbiter.drained(job.tenant, *at);
    }
    const Arbiter::Decision decision = arbiter.tick(now_ns);
    for (const auto& [id, word] : decision.gates)
      if (const auto found = by_id.find(id); found != by_id.end())
        set_gate(*found->second, word);
    for (Arbiter::Id id : decision.drain) {
      const auto found = by_id.find(id);
      if (found == by_id.end())
        continue;
      const std::lock_guard guard(found->second->lock);
      if (!ask_to_drain(*found->second))
        arbiter.drained(id, now_ns);
    }
  }
}

}  // namespace billow::gpumem
