#include "gpumem/arbiter.h"

#include <algorithm>

#include "shim/abi.h"

namespace billow::gpumem {

void Arbiter::add(Id id, std::uint32_t share_milli, bool strict, std::int64_t now_ns) {
  Job& job = jobs_[id];
  job.share_milli = std::max(1u, share_milli);
  job.strict = strict;
  job.refilled_ns = now_ns;
  balancer_.add(id, share_milli);
  // A new job starts level with the job that is furthest behind; it is owed nothing for the past.
  double least = 0;
  bool any = false;
  for (const auto& [other, entry] : jobs_) {
    if (other == id)
      continue;
    least = any ? std::min(least, entry.virtual_ns) : entry.virtual_ns;
    any = true;
  }
  job.virtual_ns = std::max(job.virtual_ns, least);
}

void Arbiter::remove(Id id) {
  jobs_.erase(id);
  balancer_.remove(id);
  if (holder_ == id)
    phase_ = Phase::free;
}

void Arbiter::see(Id id, const Seen& seen, std::int64_t now_ns) {
  const auto found = jobs_.find(id);
  if (found == jobs_.end())
    return;
  balancer_.see(id, seen, now_ns);
  Job& job = found->second;
  if (seen.launches != job.seen.launches || seen.waiting)
    job.launched_ns = now_ns;
  const bool wakes = seen.waiting && !job.seen.waiting && !(phase_ != Phase::free && holder_ == id);
  const bool launched = seen.launches != job.seen.launches;
  job.seen = seen;
  if (phase_ == Phase::held && holder_ == id && !begun_ &&
      (seen.passed_ns > granted_ns_ || launched || now_ns - granted_ns_ > options_.idle_ns)) {
    begun_ = true;
    charged_to_ns_ =
        seen.passed_ns > granted_ns_ && seen.passed_ns <= now_ns ? seen.passed_ns : now_ns;
  }
  if (!wakes)
    return;
  if (job.rested_ns && contended_ && now_ns - job.rested_ns < options_.gap_ns)
    job.virtual_ns += static_cast<double>(now_ns - job.rested_ns) * 1000.0 / job.share_milli;
  job.rested_ns = 0;
  // A job is not owed time that it did not want: it is at most one period behind the active jobs.
  double least = -1;
  for (const auto& [other, entry] : jobs_)
    if (other != id && wants(entry, now_ns))
      least = least < 0 ? entry.virtual_ns : std::min(least, entry.virtual_ns);
  if (least >= 0)
    job.virtual_ns = std::max(
        job.virtual_ns, least - static_cast<double>(options_.period_ns) * 1000.0 / job.share_milli);
}

void Arbiter::charge(Job& job, std::int64_t now_ns, bool others) {
  const std::int64_t spent = std::max<std::int64_t>(0, now_ns - charged_to_ns_);
  charged_to_ns_ = std::max(charged_to_ns_, now_ns);
  job.used_ns += spent;
  if (others)
    job.virtual_ns += static_cast<double>(spent) * 1000.0 / job.share_milli;
  job.tokens_ns -= static_cast<double>(spent);
}

bool Arbiter::wants(const Job& job, std::int64_t now_ns) const {
  return job.seen.uses_gpu &&
         (job.seen.waiting || (job.launched_ns && now_ns - job.launched_ns < options_.idle_ns));
}

bool Arbiter::may(const Job& job) const {
  return !job.strict || job.tokens_ns >= static_cast<double>(options_.turn_min_ns);
}

// Whether another job waits that is further behind the holder than a whole turn brings it.
bool Arbiter::owed(const Job& holder, std::int64_t now_ns) const {
  for (const auto& entry : jobs_) {
    const Job& other = entry.second;
    if (&other != &holder && other.seen.waiting && wants(other, now_ns) && may(other) &&
        holder.virtual_ns - other.virtual_ns > turn_virtual_ns_)
      return true;
  }
  return false;
}

std::int64_t Arbiter::turn_length(const Job& job, std::int64_t now_ns) const {
  std::uint64_t shares = 0, smallest = 1000;
  for (const auto& entry : jobs_) {
    if (!wants(entry.second, now_ns) && &entry.second != &job)
      continue;
    shares += entry.second.share_milli;
    smallest = std::min<std::uint64_t>(smallest, entry.second.share_milli);
  }
  if (job.strict)
    shares = std::max<std::uint64_t>(shares, 1000);
  // The period grows until the turn of the smallest share is worth its hand-over.
  const std::int64_t period = std::max(
      options_.period_ns, options_.turn_min_ns * static_cast<std::int64_t>(shares) /
                              static_cast<std::int64_t>(std::max<std::uint64_t>(1, smallest)));
  std::int64_t turn = std::max(
      options_.turn_min_ns,
      period * job.share_milli / static_cast<std::int64_t>(std::max<std::uint64_t>(1, shares)));
  if (job.strict)
    turn = std::min(turn, std::max(options_.turn_min_ns, static_cast<std::int64_t>(job.tokens_ns)));
  return turn;
}

void Arbiter::set_gate(Id id, Job& job, std::uint32_t word, Decision& out) {
  if (job.gate == word)
    return;
  job.gate = word;
  out.gates.emplace_back(id, word);
}

void Arbiter::grant(Id id, std::int64_t now_ns, Decision& out) {
  Job& job = jobs_.at(id);
  holder_ = id;
  phase_ = Phase::held;
  charged_to_ns_ = granted_ns_ = now_ns;
  begun_ = false;
  const std::int64_t turn = turn_length(job, now_ns);
  turn_ends_ns_ = now_ns + turn;
  turn_virtual_ns_ = static_cast<double>(turn) * 1000.0 / job.share_milli;
  job.launched_ns = now_ns;  // its threads are only now being woken
  job.turns++;
  set_gate(id, job, BILLOW_GATE_METERED, out);
}

void Arbiter::drained(Id id, std::int64_t now_ns) {
  balancer_.drained(id, now_ns);
  if (phase_ != Phase::draining || holder_ != id)
    return;
  Job& job = jobs_.at(id);
  if (!begun_)
    charged_to_ns_ = std::max(granted_ns_, job.seen.passed_ns);
  charge(job, now_ns, true);
  job.rested_ns = now_ns;
  phase_ = Phase::free;
}

Arbiter::Decision Arbiter::tick(std::int64_t now_ns) {
  Decision out;
  refill(now_ns);
  if (!contended_) {
    phase_ = Phase::free;
    for (auto& [id, job] : jobs_)
      set_gate(id, job, 0, out);
    balancing_ = false;
    return out;
  }
  if (!strict_) {
    balance(now_ns, out);
    return out;
  }
  balancing_ = false;
  for (auto& [id, job] : jobs_)
    if (phase_ != Phase::held || holder_ != id)
      set_gate(id, job, BILLOW_GATE_CLOSED | BILLOW_GATE_METERED, out);
  if (phase_ == Phase::draining && now_ns - drain_began_ns_ > options_.drain_max_ns) {
    charge(jobs_.at(holder_), now_ns, true);
    phase_ = Phase::free;
  }
  switch (phase_) {
    case Phase::held:
      continue_turn(now_ns, out);
      break;
    case Phase::free:
      start_turn(now_ns, out);
      break;
    case Phase::draining:
      break;
  }
  return out;
}

void Arbiter::balance(std::int64_t now_ns, Decision& out) {
  if (!balancing_)
    balancer_.reset();
  balancing_ = true;
  phase_ = Phase::free;
  const Balancer::Decision decision = balancer_.tick(now_ns);
  const std::uint32_t opened = BILLOW_GATE_METERED | (decision.together ? BILLOW_GATE_FAR : 0);
  for (const auto& [id, open] : decision.open)
    set_gate(id, jobs_.at(id), open ? opened : BILLOW_GATE_CLOSED | BILLOW_GATE_METERED, out);
  out.drain = decision.drain;
}

// Adds to each job's time budget and finds out whether jobs compete for the GPU.
void Arbiter::refill(std::int64_t now_ns) {
  std::size_t sharing = 0;
  strict_ = false;
  for (auto& [id, job] : jobs_) {
    sharing += job.seen.uses_gpu;
    strict_ |= job.seen.uses_gpu && job.strict;
    const double refill = static_cast<double>(now_ns - job.refilled_ns) * job.share_milli / 1000.0;
    // A job can save up one period's worth, or a few turns if its share is small.
    const double most = std::max(static_cast<double>(options_.period_ns) * job.share_milli / 1000.0,
                                 2.0 * static_cast<double>(options_.turn_min_ns));
    job.tokens_ns = std::min(most, job.tokens_ns + refill);
    job.refilled_ns = now_ns;
  }
  contended_ = sharing > 1 || strict_;
}

// Charges the holder and ends its turn if it is over, spent or idle.
void Arbiter::continue_turn(std::int64_t now_ns, Decision& out) {
  Job& job = jobs_.at(holder_);
  bool others = false;
  for (const auto& [id, other] : jobs_)
    others |= id != holder_ && wants(other, now_ns) && may(other);
  const bool idle = now_ns - job.launched_ns > options_.idle_ns;
  // An idle holder that keeps nobody waiting is not charged. A strict one is drained instead, so
  // that its charge ends when the GPU does.
  if (begun_ && !(idle && !others && !job.strict))
    charge(job, now_ns, others);
  else if (!begun_ || !job.strict)
    charged_to_ns_ = now_ns;
  const bool over =
      (now_ns >= turn_ends_ns_ && (others || job.strict)) ||
      (now_ns - granted_ns_ >= options_.owed_min_ns && !job.strict && owed(job, now_ns));
  const bool spent = job.strict && job.tokens_ns <= 0;
  if (!(spent || (job.strict && idle) || (others && (over || idle))))
    return;
  phase_ = Phase::draining;
  drain_began_ns_ = now_ns;
  set_gate(holder_, job, BILLOW_GATE_CLOSED | BILLOW_GATE_METERED, out);
  out.drain.push_back(holder_);
}

// Grants a turn to the job that has used the least time for its share.
void Arbiter::start_turn(std::int64_t now_ns, Decision& out) {
  const Job* best = nullptr;
  Id best_id = 0;
  for (const auto& [id, job] : jobs_) {
    if (!wants(job, now_ns) || !may(job))
      continue;
    if (!best || job.virtual_ns < best->virtual_ns) {
      best = &job;
      best_id = id;
    }
  }
  // A job that synchronises often returns to the gate just after its turn. If it is owed time, wait
  // for it a moment.
  for (const auto& [id, job] : jobs_)
    if (best && id != best_id && may(job) && job.virtual_ns < best->virtual_ns && job.rested_ns &&
        now_ns - job.rested_ns < options_.grace_ns)
      return;
  if (best)
    grant(best_id, now_ns, out);
}

std::int64_t Arbiter::used_ns(Id id) const {
  const auto found = jobs_.find(id);
  return found == jobs_.end() ? 0 : found->second.used_ns + balancer_.progress_ns(id);
}
std::uint64_t Arbiter::turns(Id id) const {
  const auto found = jobs_.find(id);
  return found == jobs_.end() ? 0 : found->second.turns + balancer_.turns(id);
}

}  // namespace billow::gpumem
