#include "gpumem/balancer.h"

#include <algorithm>

namespace billow::gpumem {

void Balancer::add(Id id, std::uint32_t share_milli) {
  jobs_[id].share_milli = std::max(1u, share_milli);
}

void Balancer::remove(Id id) {
  jobs_.erase(id);
  if (turn_ == id)
    turn_ = 0;
}

void Balancer::reset() {
  turn_ = 0;
  last_ns_ = began_ns_ = 0;
  for (auto& entry : jobs_) {
    entry.second.open = true;
    entry.second.at_rest = false;
    entry.second.behind_ns = 0;
  }
}

void Balancer::see(Id id, const Seen& seen, std::int64_t now_ns) {
  const auto found = jobs_.find(id);
  if (found == jobs_.end())
    return;
  Job& job = found->second;
  if (seen.launches != job.seen.launches) {
    job.launched_ns = now_ns;
    job.at_rest = false;
  }
  if (!seen.uses_gpu)
    job.at_rest = true;
  // Processes that ended or were suspended took their counts along.
  if (!job.seen.uses_gpu || seen.launches < job.seen.launches)
    job.launches = seen.launches;
  job.seen = seen;
}

void Balancer::drained(Id id, std::int64_t now_ns) {
  const auto found = jobs_.find(id);
  if (found == jobs_.end() || !found->second.drain_sent)
    return;
  Job& job = found->second;
  job.drain_sent = false;
  // A gate that stayed closed lets nothing new in, even if a launch was counted late.
  if (job.opened_since && job.seen.launches != job.launches_at_drain)
    return;
  job.at_rest = true;
  job.rested_ns = now_ns;
}

bool Balancer::has_gpu_alone(const Job& job) const {
  return job.open && std::all_of(jobs_.begin(), jobs_.end(), [&](const Entry& e) {
           return &e.second == &job || (e.second.at_rest && (!e.second.open || !e.second.active));
         });
}

double Balancer::together_rate(const Job& job) const {
  if (!job.alone.known() || !job.together.known())
    return 1.0 / static_cast<double>(std::max<std::size_t>(1, active_));
  return std::min(1.0, job.together.per_ns() / job.alone.per_ns());
}

bool Balancer::easy_together() const {
  return std::all_of(jobs_.begin(), jobs_.end(), [&](const Entry& e) {
    const Job& job = e.second;
    return !job.active || (job.alone.known() && job.together.known() &&
                           together_rate(job) >= options_.easy * job.target);
  });
}

double Balancer::margin(const Job& job) const {
  return std::max(options_.margin_large, options_.margin * std::min(1.0, 2 * (1 - job.target)));
}

// A job is active if it waits, works, or has just worked. Its promise is its share of the active
// jobs' shares.
void Balancer::find_active(std::int64_t now_ns) {
  double shares = 0;
  active_ = 0;
  for (auto& entry : jobs_) {
    Job& job = entry.second;
    const bool was = job.active;
    const std::int64_t last = std::max(job.launched_ns, job.rested_ns);
    job.active = job.seen.uses_gpu && (job.seen.waiting || (!job.at_rest && job.launched_ns) ||
                                       (last && now_ns - last < options_.gap_ns));
    // A job that wakes has no claim on the time that it did not want.
    if (job.active && !was) {
      job.behind_ns = std::min(job.behind_ns, 0.0);
      // After a rest a program may do something else.
      if (job.idle_since_ns && now_ns - job.idle_since_ns >= options_.rest_ns)
        forget_rates(job, now_ns);
      together_at_ns_ = job.together.known() ? together_at_ns_ : now_ns;
    }
    if (!job.active && was)
      job.idle_since_ns = now_ns;
    active_ += job.active;
    shares += job.active ? job.share_milli : 0;
  }
  for (auto& entry : jobs_)
    entry.second.target = entry.second.active ? entry.second.share_milli / shares : 0;
}

// Adds the progress and the promise of the time since the last tick.
void Balancer::account(std::int64_t now_ns, double spent_ns) {
  for (auto& entry : jobs_) {
    Job& job = entry.second;
    const double launches = static_cast<double>(job.seen.launches - job.launches);
    job.launches = job.seen.launches;
    if (!job.active)
      continue;
    const bool alone = has_gpu_alone(job);
    double progress = 0;
    if (job.open || !job.at_rest)
      progress = spent_ns * (active_ == 1 || alone ? 1.0 : together_rate(job));
    job.progress_ns += progress;
    if (active_ < 2)
      continue;
    job.behind_ns += spent_ns * job.target * (1 + margin(job)) - progress;
    measure(job, launches, now_ns);
    compare(job, alone, launches, now_ns, spent_ns);
  }
}

void Balancer::measure(Job& job, double launches, std::int64_t now_ns) {
  const std::int64_t silence = now_ns - job.last_launch_ns;
  // A burst begins after a silence like the longest: the program waited for the GPU, or prepared.
  const bool burst =
      launches > 0 && silence >= std::max(options_.burst_ns, job.silence_ns * 6 / 10);
  const bool longer = launches > 0 && silence > job.silence_ns * 3 / 2;
  if (launches > 0) {
    job.last_launch_ns = now_ns;
    job.silence_ns = job.open && clean_ns_ ? std::max(job.silence_ns, silence) : job.silence_ns;
  }
  if (!clean_ns_ || !job.open)
    return;
  Meter& m = job.meter;
  if (!m.from_ns) {
    m = Meter{};
    m.from_ns = now_ns;
    return;
  }
  m.all += launches;
  if (burst && longer) {  // what seemed to be bursts was not
    m.bursts = 0;
    m.in_periods = 0;
  }
  if (burst) {
    m.in_periods += m.bursts ? m.since_burst : 0;
    m.since_burst = 0;
    m.first_ns = m.bursts++ ? m.first_ns : now_ns;
    m.last_ns = now_ns;
  }
  m.since_burst += launches;
}

// A program that goes over to other work has other rates, and so have the jobs beside it.
void Balancer::compare(
    Job& job, bool alone, double launches, std::int64_t now_ns, double spent_ns) {
  const Rate& rate = alone ? job.alone : job.together;
  if (!job.alone.known() || !job.together.known() || (!job.open && job.at_rest))
    return;
  job.seen_launches += launches;
  job.expected_launches += spent_ns * rate.per_ns();
  job.compared_ns += spent_ns;
  if (job.compared_ns < static_cast<double>(options_.compare_ns) ||
      std::max(job.seen_launches, job.expected_launches) < 16)
    return;
  const double ratio = job.seen_launches / job.expected_launches;
  job.seen_launches = job.expected_launches = job.compared_ns = 0;
  if (ratio < options_.change && ratio > 1 / options_.change)
    return;
  forget_rates(job, now_ns);
}

// What was counted by the wrong rates is forgotten, too.
void Balancer::forget_rates(Job& job, std::int64_t now_ns) {
  job.alone = Rate{};
  job.measure_ns = job.again_ns = 0;
  job.seen_launches = job.expected_launches = job.compared_ns = 0;
  together_at_ns_ = now_ns;
  together_again_ns_ = 0;
  for (auto& entry : jobs_) {
    entry.second.together = Rate{};
    entry.second.behind_ns = 0;
  }
}

// Turns what was measured in this phase into rates.
void Balancer::finish_measuring(std::int64_t now_ns) {
  for (auto& [id, job] : jobs_) {
    const Meter m = job.meter;
    job.meter = Meter{};
    if (!clean_ns_ || !m.from_ns || (turn_ && turn_ != id))
      continue;
    const bool whole = m.bursts > 1 && 2 * (m.last_ns - m.first_ns) > now_ns - m.from_ns;
    job.silence_ns = job.silence_ns * 6 / 10;
    const double ns = static_cast<double>(whole ? m.last_ns - m.first_ns : now_ns - m.from_ns);
    const double launches = whole ? m.in_periods : m.all;
    if (launches < 2)
      job.stretch = std::min(job.stretch * 2, options_.stretch_max);
    Rate& rate = turn_ ? job.alone : job.together;
    rate.ns = rate.ns * options_.keep + ns;
    rate.launches = rate.launches * options_.keep + launches;
  }
  // Measuring a job alone makes the others wait, and beside a large share it takes ten times as
  // long to make up for that. While all have more than their promise, an error of the rates harms
  // nobody; nor does one of the rate alone of a job that is far ahead.
  const bool easy_now = easy_together();
  const auto later = [&](std::int64_t& at, std::int64_t& again, bool easy) {
    const std::int64_t longer = easy ? std::min(again * 3, options_.again_easy_ns)
                                     : std::min(again * 3 / 2, options_.again_most_ns);
    again = again ? longer : options_.again_first_ns;
    at = now_ns + again;
  };
  if (turn_) {
    Job& job = jobs_.at(turn_);
    later(job.measure_ns, job.again_ns, easy_now || job.behind_ns <= -0.5 * credit(job));
  } else {
    later(together_at_ns_, together_again_ns_, easy_now);
  }
  clean_ns_ = 0;
  measuring_ = false;
}

double Balancer::credit(const Job& job) const {
  return std::min(static_cast<double>(options_.credit_ns) * job.target,
                  static_cast<double>(options_.credit_max_ns));
}

void Balancer::settle_debts() {
  double common = -1;
  for (const auto& entry : jobs_) {
    const Job& job = entry.second;
    if (!job.active)
      continue;
    const double debt = job.behind_ns - 2 * static_cast<double>(options_.slack_ns);
    const double own = std::max(0.0, debt / job.target);
    common = common < 0 ? own : std::min(common, own);
  }
  for (auto& entry : jobs_) {
    Job& job = entry.second;
    if (job.active)
      job.behind_ns = std::max(job.behind_ns - std::max(0.0, common) * job.target, -credit(job));
  }
}

std::int64_t Balancer::measurement_ns() const {
  int stretch = 1;
  for (const auto& [id, job] : jobs_)
    if (job.active && (!turn_ || turn_ == id))
      stretch = std::max(stretch, job.stretch);
  return stretch * (turn_ ? options_.alone_ns : options_.together_ns);
}

bool Balancer::phase_over(std::int64_t now_ns) const {
  const std::int64_t age = now_ns - began_ns_;
  if (measuring_) {
    const std::int64_t wanted = measurement_ns();
    return age >= 4 * wanted || (clean_ns_ && now_ns - clean_ns_ >= wanted);
  }
  if (!turn_)
    return age >= options_.together_min_ns;
  return age >= options_.turn_max_ns ||
         (age >= options_.turn_min_ns &&
          jobs_.at(turn_).behind_ns <= -0.5 * static_cast<double>(options_.slack_ns));
}

bool Balancer::others_due() const {
  return std::any_of(jobs_.begin(), jobs_.end(), [&](const Entry& e) {
    return e.first != turn_ && e.second.active && e.second.behind_ns > -0.25 * credit(e.second);
  });
}

// Whose turn it is: 0 if all run together.
Balancer::Id Balancer::pick(std::int64_t now_ns, bool& measures) const {
  measures = true;
  for (const auto& [id, job] : jobs_)
    if (job.active && !job.alone.known() && now_ns >= job.measure_ns)
      return id;
  if (now_ns >= together_at_ns_)
    return 0;
  Id behind = 0;
  double most = 0, rates = 0;
  bool known = true;
  for (const auto& [id, job] : jobs_) {
    if (!job.active)
      continue;
    if (now_ns >= job.measure_ns)
      return id;
    rates += together_rate(job);
    known &= job.alone.known() && job.together.known();
    if (!behind || job.behind_ns > most) {
      most = job.behind_ns;
      behind = id;
    }
  }
  measures = false;
  // If running together loses more than taking turns does, somebody always has a turn.
  const bool loses = known && rates < options_.worthwhile;
  return loses || most > static_cast<double>(options_.slack_ns) ? behind : 0;
}

void Balancer::begin(Id turn, bool measures, std::int64_t now_ns) {
  if (turn_ == turn && !measures)
    return;  // it continues; began_ns_ still limits it
  measuring_ = measures;
  clean_ns_ = 0;
  began_ns_ = now_ns;
  if (turn && turn_ != turn)
    jobs_.at(turn).turns++;
  turn_ = turn;
  for (auto& [id, job] : jobs_) {
    const bool open = !turn || turn == id;
    if (open && !job.open) {
      job.opened_since = true;
      job.at_rest = job.at_rest && !job.seen.waiting;
    }
    job.open = open;
    job.meter = Meter{};
  }
}

Balancer::Decision Balancer::tick(std::int64_t now_ns) {
  const std::int64_t spent =
      last_ns_ ? std::clamp<std::int64_t>(now_ns - last_ns_, 0, 50'000'000) : 0;
  last_ns_ = now_ns;
  find_active(now_ns);
  account(now_ns, static_cast<double>(spent));
  settle_debts();
  if (active_ < 2 || (turn_ && !jobs_.at(turn_).active)) {
    measuring_ = false;
    clean_ns_ = 0;
    begin(0, false, now_ns);
  } else if (phase_over(now_ns)) {
    if (measuring_)
      finish_measuring(now_ns);
    bool measures = false;
    Id next = pick(now_ns, measures);
    // A job at the limit of its turn waits once for the others, unless they are far ahead.
    if (turn_ && next == turn_ && now_ns - began_ns_ >= options_.turn_max_ns && others_due()) {
      next = 0;
      measures = false;
    }
    begin(next, measures, now_ns);
  }
  // A measurement is valid once the GPU has finished what was queued before it.
  const bool undisturbed = measuring_ && (!turn_ || has_gpu_alone(jobs_.at(turn_)));
  if (!undisturbed)
    settled_from_ns_ = now_ns;
  else if (!clean_ns_ && now_ns - settled_from_ns_ >= options_.settle_ns)
    clean_ns_ = now_ns;
  Decision out;
  for (auto& [id, job] : jobs_) {
    out.open[id] = job.open;
    const bool ask = !job.open || now_ns - job.launched_ns > options_.quiet_ns;
    if (!job.seen.uses_gpu || job.at_rest || job.drain_sent || !ask)
      continue;
    job.drain_sent = true;
    job.opened_since = job.open;
    job.launches_at_drain = job.seen.launches;
    out.drain.push_back(id);
  }
  return out;
}

std::int64_t Balancer::progress_ns(Id id) const {
  const auto found = jobs_.find(id);
  return found == jobs_.end() ? 0 : static_cast<std::int64_t>(found->second.progress_ns);
}
std::uint64_t Balancer::turns(Id id) const {
  const auto found = jobs_.find(id);
  return found == jobs_.end() ? 0 : found->second.turns;
}
double Balancer::rate_together(Id id) const {
  const auto found = jobs_.find(id);
  return found == jobs_.end() ? 1 : together_rate(found->second);
}

}  // namespace billow::gpumem
