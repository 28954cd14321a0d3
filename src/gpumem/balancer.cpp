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

bool Balancer::lone_is_alone() const {
  return std::all_of(jobs_.begin(), jobs_.end(),
                     [&](const Entry& e) { return !e.second.active || has_gpu_alone(e.second); });
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

// The progress of the time since the last tick. Launches come in bursts, so what they say is spread
// over some time: until then the rate is expected to be as it was.
double Balancer::progress(Job& job, double launches, double spent_ns) const {
  if (active_ == 1)
    return spent_ns;
  const bool alone = has_gpu_alone(job);
  const double rate = alone ? 1.0 : job.open || !job.at_rest ? together_rate(job) : 0.0;
  const double expected = spent_ns * rate;
  if (!job.alone.known() || job.stretch > 1)  // or launches are too rare to say anything
    return expected;
  job.uncounted_ns += launches / job.alone.per_ns() - expected;
  const double now = job.uncounted_ns * std::min(1.0, spent_ns / options_.correct_ns);
  job.uncounted_ns -= now;
  return expected + now;
}

// Adds the progress and the promise of the time since the last tick.
void Balancer::account(std::int64_t now_ns, double spent_ns) {
  for (auto& entry : jobs_) {
    Job& job = entry.second;
    const double launches = static_cast<double>(job.seen.launches - job.launches);
    job.launches = job.seen.launches;
    if (!job.active)
      continue;
    const double made = progress(job, launches, spent_ns);
    job.progress_ns += made;
    measure(job, launches, now_ns);
    if (active_ < 2)
      continue;
    job.behind_ns += spent_ns * job.target * (1 + margin(job)) - made;
    compare(job, has_gpu_alone(job), launches, now_ns, spent_ns);
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
  Meter& m = job.meter;
  if (!clean_ns_ || !job.open) {
    m = Meter{};
    return;
  }
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
  job.measure_ns = job.again_ns = job.measured_ns = 0;
  job.seen_launches = job.expected_launches = job.compared_ns = 0;
  together_at_ns_ = now_ns;
  together_again_ns_ = 0;
  for (auto& entry : jobs_) {
    entry.second.together = Rate{};
    entry.second.behind_ns = entry.second.uncounted_ns = 0;
  }
}

// A measurement that is far off does not count. A second one shows that the program does something
// else, or that what was known is wrong.
void Balancer::learn(Rate& rate, double ns, double launches, int stretch) const {
  const double expected = rate.known() ? ns * rate.per_ns() : launches;
  const bool odd = std::max(launches, expected) >= 8 &&
                   (launches > expected * options_.change || launches * options_.change < expected);
  rate.odd = odd ? rate.odd + 1 : 0;
  if (odd)
    return;
  const double keep = std::max(0.0, 1 - ns / (options_.memory_ns * stretch));
  rate.ns = rate.ns * keep + ns;
  rate.launches = rate.launches * keep + launches;
}

// Turns what was measured since clean_ns_ into rates, and begins anew.
void Balancer::take_rates(std::int64_t now_ns) {
  const bool enough = clean_ns_ && 2 * (now_ns - clean_ns_) >= measurement_ns();
  const bool alone = turn_ || active_ == 1;
  Job* measured = nullptr;
  for (auto& [id, job] : jobs_) {
    const Meter m = job.meter;
    job.meter = Meter{};
    if (!enough || !m.from_ns || !job.active || (turn_ && turn_ != id))
      continue;
    const bool whole = m.bursts > 1 && 3 * (m.last_ns - m.first_ns) > now_ns - m.from_ns;
    // Where a short measurement begins and ends matters too much.
    if (!whole && 10 * (now_ns - m.from_ns) < 9 * measurement_ns())
      continue;
    job.silence_ns = job.silence_ns * 6 / 10;
    const double ns = static_cast<double>(whole ? m.last_ns - m.first_ns : now_ns - m.from_ns);
    const double launches = whole ? m.in_periods : m.all;
    if (launches < 2)
      job.stretch = std::min(job.stretch * 2, options_.stretch_max);
    Rate& rate = alone ? job.alone : job.together;
    learn(rate, ns, launches, job.stretch);
    if (rate.odd > 1)
      forget_rates(job, now_ns);
    if (alone)
      measured = &job;
  }
  clean_ns_ = clean_ns_ ? now_ns : 0;
  measuring_ = measuring_ && !enough;
  if (!enough)
    return;
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
  if (measured && measured->alone.known()) {
    later(measured->measure_ns, measured->again_ns, easy_now || far_ahead(*measured));
    measured->measured_ns = now_ns;
  } else if (turn_) {
    jobs_.at(turn_).measure_ns = now_ns + options_.again_first_ns;
  } else if (!alone) {
    later(together_at_ns_, together_again_ns_, easy_now);
  }
}

bool Balancer::far_ahead(const Job& job) const {
  return job.alone.known() && job.behind_ns <= -0.5 * credit(job) &&
         together_rate(job) >= options_.ahead * job.target;
}

// Whether running together loses more than taking turns does.
bool Balancer::take_turns() const {
  double rates = 0;
  for (const auto& entry : jobs_) {
    const Job& job = entry.second;
    if (job.active && (!job.alone.known() || !job.together.known()))
      return false;
    rates += job.active ? together_rate(job) : 0;
  }
  return rates < options_.worthwhile;
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
  if (measuring_)
    return age >= 4 * measurement_ns();
  if (!turn_)
    return age >= options_.together_min_ns;
  return age >= options_.turn_max_ns ||
         (age >= (take_turns() ? options_.exclusive_ns : options_.turn_min_ns) &&
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
  const bool turns = take_turns();
  Id behind = 0;
  double most = 0;
  for (const auto& [id, job] : jobs_) {
    if (!job.active)
      continue;
    if (now_ns >= job.measure_ns &&
        !(far_ahead(job) && now_ns < job.measured_ns + options_.again_ahead_ns))
      return id;
    // A job that makes more than its promise together catches up by itself.
    const bool slow = turns || together_rate(job) < job.target * (1 + margin(job)) ||
                      job.behind_ns > options_.urgent * static_cast<double>(options_.slack_ns);
    if (slow && (!behind || job.behind_ns > most)) {
      most = job.behind_ns;
      behind = id;
    }
  }
  measures = false;
  return turns || most > static_cast<double>(options_.slack_ns) ? behind : 0;
}

void Balancer::begin(Id turn, bool measures, std::int64_t now_ns) {
  if (turn_ == turn && !measures)
    return;  // it continues; began_ns_ still limits it
  take_rates(now_ns);
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

void Balancer::next_phase(std::int64_t now_ns) {
  bool measures = false;
  Id next = pick(now_ns, measures);
  // A job at the limit of its turn waits once for the others, unless they are far ahead. Jobs that
  // always take turns wait until they are behind.
  if (turn_ && next == turn_ && now_ns - began_ns_ >= options_.turn_max_ns && others_due() &&
      !take_turns()) {
    next = 0;
    measures = false;
  }
  begin(next, measures, now_ns);
}

Balancer::Decision Balancer::tick(std::int64_t now_ns) {
  const std::int64_t spent =
      last_ns_ ? std::clamp<std::int64_t>(now_ns - last_ns_, 0, 50'000'000) : 0;
  last_ns_ = now_ns;
  const std::size_t were_active = active_;
  find_active(now_ns);
  account(now_ns, static_cast<double>(spent));
  settle_debts();
  if (active_ < 2 || (turn_ && !jobs_.at(turn_).active)) {
    measuring_ = false;
    if (turn_ || active_ != were_active)
      clean_ns_ = 0;
    begin(0, false, now_ns);
  } else if (active_ != were_active) {
    clean_ns_ = 0;
  }
  if (clean_ns_ && now_ns - clean_ns_ >= measurement_ns())
    take_rates(now_ns);
  if (active_ > 1 && phase_over(now_ns))
    next_phase(now_ns);
  // What is seen counts once the GPU has finished what was queued before. A lone job shows its rate
  // alone.
  const bool undisturbed =
      active_ == 1 ? lone_is_alone() : active_ > 1 && (!turn_ || has_gpu_alone(jobs_.at(turn_)));
  if (!undisturbed)
    settled_from_ns_ = now_ns;
  else if (!clean_ns_ && now_ns - settled_from_ns_ >= options_.settle_ns)
    clean_ns_ = now_ns;
  Decision out;
  out.together = !turn_;
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
