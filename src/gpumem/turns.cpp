// Runs the arbiter: reads the jobs' pages, asks the pure core, writes gate words and sends DRAIN.
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>

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

// For each GPU: what its jobs do now (their pages, and their answers to DRAIN) goes into the
// arbiter; its decision comes out as gate words and new DRAIN messages. A job that was asked to
// drain has drained when all its processes have answered or closed their link.
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
      Arbiter::Seen seen;
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
      // A suspended job's waiting threads wait for its memory, not for a turn.
      if (job.phase != JobPhase::running)
        seen = Arbiter::Seen{};
      arbiter.see(job.tenant, seen, now_ns);
      const std::lock_guard guard(job.lock);
      if (job.draining.empty())
        continue;
      std::int64_t rested_ns = 0;
      for (auto d = job.draining.begin(); d != job.draining.end();) {
        Answer answer;
        if (d->first->closed())
          d = job.draining.erase(d);
        else if (d->first->poll(d->second, answer)) {
          rested_ns = std::max(rested_ns, static_cast<std::int64_t>(answer.head.arg0));
          d = job.draining.erase(d);
        } else
          ++d;
      }
      // The shim reads the same clock; its value is used if it is recent.
      const bool plausible = rested_ns <= now_ns && now_ns - rested_ns < 100'000'000;
      if (job.draining.empty())
        arbiter.drained(job.tenant, plausible ? rested_ns : now_ns);
    }
    const Arbiter::Decision decision = arbiter.tick(now_ns);
    for (const auto& [id, word] : decision.gates) {
      Job* job = by_id.contains(id) ? by_id[id] : nullptr;
      if (!job)
        continue;
      __atomic_store_n(&job->limit->gate, word, __ATOMIC_SEQ_CST);
      syscall(SYS_futex, &job->limit->gate, FUTEX_WAKE, 0x7fffffff, nullptr, nullptr, 0);
    }
    for (Arbiter::Id id : decision.drain) {
      Job* job = by_id.contains(id) ? by_id[id] : nullptr;
      if (!job)
        continue;
      const std::lock_guard guard(job->lock);
      job->limit->turn++;
      for (auto& link : job->links)
        if (job->usage->slots[link->slot].contexts && !job->draining.contains(link.get()))
          if (const auto sent = link->send(BILLOW_DRAIN, job->limit->turn))
            job->draining[link.get()] = *sent;
      if (job->draining.empty())
        arbiter.drained(id, now_ns);
    }
  }
}

}  // namespace billow::gpumem
