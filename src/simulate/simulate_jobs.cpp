// The queueing experiment on the Muri traces (SIGCOMM'22) and on Philly: jobs that can be stopped
// and resumed at every arrival and completion, on nodes of equal size.
//
// The model is the published one, so that figures compare. At every event, each running job loses
// its start overhead (by model and GPU count) of progress. Jobs of up to one node share a node
// first-fit; larger ones take whole nodes. Interleaved jobs of equal size advance one iteration per
// round; a round lasts as long as their overlapped phases, times a measured slow-down for two,
// three and four jobs.
//
// Billow's own policies:
//   known durations    Smallest remaining service first, weighted by the job's width (GPUs^w). Each
//                      candidate w is played to the end on the jobs at hand; the best is followed.
//   unknown durations  Every job first gets one minute, then five, before any gets more, so that
//                      short jobs end instead of waiting for long ones. Then come levels of
//                      attained service that widen five-fold; within a level narrow jobs come
//                      first, then the job with the most service, so that started work is finished.
//   interleaving       Groups are built for the most completions per second and GPU, and dissolved
//                      again while GPUs are idle.
#include <algorithm>
#include <cmath>
#include <list>
#include <numeric>

#include <fmt/format.h>

#include "base/text.h"
#include "simulate/rounds.h"
#include "simulate/simulate.h"

namespace billow::sched {

namespace {

// Seconds to start (or resume) a job, by model and GPUs 1, 2, 4, 8, 16, 32: measured by the trace's
// authors.
double start_overhead_s(const std::string& model, std::int32_t gpus) {
  static const std::map<std::string, std::array<int, 6>> measured = {
      {"vgg16", {7, 7, 8, 9, 9, 10}},     {"vgg19", {7, 7, 8, 9, 10, 10}},
      {"resnet18", {4, 5, 5, 7, 7, 7}},   {"shufflenet_v2_x1_0", {4, 4, 5, 5, 7, 8}},
      {"bert", {10, 10, 10, 10, 10, 10}}, {"gpt2", {10, 10, 10, 10, 10, 10}},
      {"a2c", {38, 39, 39, 46, 46, 46}},  {"dqn", {5, 5, 6, 6, 8, 8}}};
  auto it = measured.find(model);
  if (it == measured.end())
    return 10;
  std::size_t k = 0;
  while (k < 5 && (1 << k) < gpus)
    ++k;
  return it->second[k];
}

class QueueSim {
 public:
  QueueSim(const std::vector<TraceJob>& jobs, const QueueOptions& options)
      : jobs_(jobs), o_(options), capacity_(options.nodes * options.gpus_per_node), rounds_(jobs) {
    for (const TraceJob& j : jobs) {
      Live l;
      l.job = &j;
      l.left_s = j.service_s;
      l.own_overhead_s = start_overhead_s(j.model, j.gpus);
      l.profile = rounds_.profile(j);
      all_.push_back(l);
    }
    for (Live& l : all_)
      arrivals_.push_back(&l);
    std::ranges::stable_sort(arrivals_, {}, [](const Live* l) { return l->job->submit_s; });
  }

  QueueResult run() {
    std::size_t next = 0;
    while (next < arrivals_.size() || !waiting_.empty()) {
      const double arrival = next < arrivals_.size() ? arrivals_[next]->job->submit_s : forever;
      double end = forever;
      for (const Live* l : waiting_)
        end = l->running ? std::min(end, l->end_s) : end;
      const double timer = next_level_change();
      now_ = std::min({arrival, end, timer});
      if (now_ >= forever)
        break;
      if (end == now_)
        finish();
      while (next < arrivals_.size() && arrivals_[next]->job->submit_s == now_)
        waiting_.push_back(arrivals_[next++]);
      progress();
      last_s_ = now_;
      replan();
    }
    return summary();
  }

 private:
  static constexpr double forever = 1e18;
  bool levels() const { return o_.policy == QueuePolicy::best && !o_.durations_known; }
  double level_base() const { return o_.interleave ? 8 : 5; }
  static constexpr double level_first = 20000;  // GPU-seconds
  static constexpr std::array<double, 2> first_turns_s = {60,
                                                          300};  // time on GPUs, before the levels

  // Which of its first turns a job is in; past the last one: none.
  static std::size_t turn_of(const Live& l) {
    std::size_t turn = 0;
    while (turn < first_turns_s.size() && l.held_s >= first_turns_s[turn] * (1 - 1e-9))
      ++turn;
    return turn;
  }

  // When a running job leaves its level, if nothing happens before.
  double next_level_change() const {
    if (!levels())
      return forever;
    double soonest = forever;
    for (const Live* l : waiting_) {
      if (!l->running)
        continue;
      if (const std::size_t turn = turn_of(*l); turn < first_turns_s.size()) {
        soonest = std::min(soonest, now_ + std::max(first_turns_s[turn] - l->held_s, 20.0));
        continue;
      }
      const double attained = l->held_s * l->job->gpus;
      double limit = level_first;
      while (attained >= limit * (1 - 1e-9))
        limit *= level_base();
      soonest = std::min(soonest, now_ + std::max((limit - attained) / l->job->gpus, 60.0));
    }
    return soonest;
  }

  void finish() {
    for (Live* l : waiting_) {
      if (!l->running || l->end_s != now_)
        continue;
      l->done = true;
      const double jct = now_ - l->job->submit_s;
      jcts_.push_back(jct);
      result_.slowdown_max = std::max(result_.slowdown_max, jct / l->job->service_s);
      wait_sum_s_ += jct - l->held_s - (now_ - last_s_);
      busy_gpu_s_ += l->job->service_s * l->job->gpus;
      result_.makespan_s = now_;
    }
    std::erase_if(waiting_, [](const Live* l) { return l->done; });
  }

  void progress() {
    for (Live* l : waiting_) {
      if (!l->running)
        continue;
      const double elapsed = now_ - last_s_;
      l->left_s -= std::max(elapsed - l->overhead_s, 0.0) / l->round_s * l->job->iteration_s;
      l->held_s += elapsed;
    }
  }

  double key_of(const Live& l) {
    const double gpus = l.job->gpus;
    switch (o_.policy) {
      case QueuePolicy::srsf:
        return l.left_s * gpus;
      case QueuePolicy::fifo:
        return l.job->submit_s;
      case QueuePolicy::las:
        return l.held_s * gpus;
      case QueuePolicy::fair:
        return l.held_s / std::max(now_ - l.job->submit_s, 1.0);  // the served part of its life
      case QueuePolicy::best:
        break;
    }
    if (o_.durations_known)
      return l.left_s * std::pow(gpus, width_weight_);
    if (const std::size_t turn = turn_of(l); turn < first_turns_s.size())
      return -1e12 * static_cast<double>(first_turns_s.size() - turn) + gpus * 1e9;
    double limit = level_first;
    int level = 0;
    while (l.held_s * gpus >= limit * (1 - 1e-9)) {
      limit *= level_base();
      ++level;
    }
    return level * 1e12 + gpus * 1e9 - l.held_s * gpus * 0.1;
  }

  // How the present jobs would end (sum of completion times) with this weight of width; stops when
  // worse than `bound`.
  double look_ahead(double weight, double bound) const {
    struct Item {
      double key, left;
      std::int32_t gpus;
      double per_left;
    };
    std::vector<Item> items;
    for (const Live* l : waiting_) {
      const double w = std::pow(l->job->gpus, weight);
      items.push_back({l->left_s * w, l->left_s, l->job->gpus, w});
    }
    const auto by_key = [](const Item& a, const Item& b) {
      return a.key < b.key;
    };
    std::ranges::stable_sort(items, by_key);
    std::list<Item> queue(items.begin(), items.end());
    std::vector<Item> running, chosen, back;
    double t = 0, cost = 0;
    for (std::size_t left = items.size(); left > 0;) {
      std::int32_t free = capacity_;
      std::ranges::stable_sort(running, by_key);
      chosen.clear();
      back.clear();
      std::size_t r = 0;
      for (auto q = queue.begin(); free > 0 && (r < running.size() || q != queue.end());) {
        const bool from_running =
            r < running.size() && (q == queue.end() || running[r].key <= q->key);
        const Item& item = from_running ? running[r] : *q;
        const bool fits = item.gpus <= free;
        if (fits) {
          free -= item.gpus;
          chosen.push_back(item);
        } else if (from_running)
          back.push_back(item);
        if (from_running)
          ++r;
        else
          q = fits ? queue.erase(q) : std::next(q);
      }
      back.insert(back.end(), running.begin() + static_cast<std::ptrdiff_t>(r), running.end());
      for (const Item& item : back)
        queue.insert(std::find_if(queue.begin(), queue.end(),
                                  [&](const Item& x) { return x.key >= item.key; }),
                     item);
      double step = forever;
      for (const Item& item : chosen)
        step = std::min(step, item.left);
      t += step;
      running.clear();
      for (Item& item : chosen) {
        item.left -= step;
        item.key = item.left * item.per_left;
        if (item.left > 1e-6)
          running.push_back(item);
        else {
          cost += t;
          --left;
        }
      }
      if (cost > bound)
        return forever;
    }
    return cost;
  }

  void choose_width_weight() {
    if (o_.policy != QueuePolicy::best || !o_.durations_known || o_.interleave)
      return;
    if (plans_++ % 32 != 0 && waiting_.size() >= 200)
      return;  // long queues change slowly
    if (waiting_.size() > 4000)
      return;
    double best = look_ahead(width_weight_, forever) * 0.9995, weight = width_weight_;
    for (double candidate : {1.0, 1.05, 0.95, 0.9, 0.85, 0.8}) {
      if (candidate == width_weight_)
        continue;
      const double cost = look_ahead(candidate, best);
      if (cost < best) {
        best = cost;
        weight = candidate;
      }
    }
    width_weight_ = weight;
  }

  // First-fit in key order, as published.
  std::vector<Group> first_fit() const {
    std::vector<std::int32_t> free(static_cast<std::size_t>(o_.nodes), o_.gpus_per_node);
    std::vector<Group> groups;
    std::int64_t left = capacity_;
    for (Live* l : waiting_) {
      if (left == 0)
        break;
      std::int32_t gpus = l->job->gpus;
      if (gpus <= o_.gpus_per_node) {
        auto node = std::ranges::find_if(free, [&](std::int32_t f) { return f >= gpus; });
        if (node == free.end())
          continue;
        *node -= gpus;
      } else {
        const std::int32_t need = (gpus + o_.gpus_per_node - 1) / o_.gpus_per_node;
        if (std::ranges::count(free, o_.gpus_per_node) < need)
          continue;
        for (std::int32_t taken = 0; std::int32_t & f : free) {
          if (taken < need && f == o_.gpus_per_node) {
            f = 0;
            ++taken;
          }
        }
        gpus = need * o_.gpus_per_node;
      }
      left -= gpus;
      groups.push_back({l});
    }
    return groups;
  }

  // Completions per second that a group achieves, each job by its remaining time (or, if unknown,
  // by its time so far).
  double worth(const Group& group) {
    const double round = rounds_.seconds(group);
    double sum = 0;
    for (const Live* l : group) {
      const double left =
          o_.durations_known ? std::max(l->left_s, 1.0) : std::max(l->held_s, 1000.0);
      sum += l->job->iteration_s / round / left;
    }
    return sum;
  }

  void add_partners(Group& group,
                    std::vector<Live*>& candidates,
                    std::size_t from,
                    std::vector<char>& used) {
    double value = worth(group);
    std::vector<std::size_t> likes;
    for (std::size_t k = from; k < candidates.size() && likes.size() < 40; ++k) {
      if (!used[k] && candidates[k]->job->gpus == group[0]->job->gpus)
        likes.push_back(k);
    }
    const auto with = [&](std::initializer_list<std::size_t> more) {
      Group g = group;
      for (std::size_t k : more)
        g.push_back(candidates[k]);
      return worth(g);
    };
    while (group.size() < 4) {
      std::vector<std::size_t> best;
      for (std::size_t a = 0; a < likes.size(); ++a) {
        if (used[likes[a]])
          continue;
        if (const double v = with({likes[a]}); v > value) {
          value = v;
          best = {likes[a]};
        }
      }
      // Three are slower than four: adding two may pay off where one does not.
      if (best.empty() && group.size() == 2) {
        for (std::size_t a = 0; a < std::min<std::size_t>(likes.size(), 12); ++a) {
          for (std::size_t b = a + 1; b < std::min<std::size_t>(likes.size(), 12); ++b) {
            if (used[likes[a]] || used[likes[b]])
              continue;
            if (const double v = with({likes[a], likes[b]}); v > value) {
              value = v;
              best = {likes[a], likes[b]};
            }
          }
        }
      }
      if (best.empty())
        return;
      for (std::size_t k : best) {
        group.push_back(candidates[k]);
        used[k] = 1;
      }
    }
  }

  std::vector<Group> interleaved() {
    std::int64_t demand = 0;
    for (const Live* l : waiting_)
      demand += l->job->gpus;
    if (demand <= capacity_)
      return first_fit();
    std::vector<Live*> candidates;
    std::int64_t seen = 0;
    for (Live* l : waiting_) {
      if (seen + l->job->gpus > 8 * capacity_)
        continue;
      candidates.push_back(l);
      seen += l->job->gpus;
    }
    std::vector<char> used(candidates.size(), 0);
    std::vector<std::pair<double, Group>> built;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      if (used[i])
        continue;
      used[i] = 1;
      Group g{candidates[i]};
      add_partners(g, candidates, i + 1, used);
      const double density = worth(g) / g[0]->job->gpus;
      built.emplace_back(density, std::move(g));
    }
    std::ranges::stable_sort(built, std::greater<>{}, [](const auto& b) { return b.first; });
    std::int32_t free = capacity_;
    std::vector<Group> groups;
    for (auto& [density, g] : built) {
      if (g[0]->job->gpus > free)
        continue;
      free -= g[0]->job->gpus;
      groups.push_back(std::move(g));
    }
    while (free > 0) {  // idle GPUs: release the job that gains most by running alone
      double gain = 0;
      std::size_t group = 0, member = 0;
      for (std::size_t x = 0; x < groups.size(); ++x) {
        if (groups[x].size() < 2 || groups[x][0]->job->gpus > free)
          continue;
        const double together = worth(groups[x]);
        for (std::size_t m = 0; m < groups[x].size(); ++m) {
          Group rest = groups[x];
          rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(m));
          const double g = worth(rest) + worth({groups[x][m]}) - together;
          if (g > gain) {
            gain = g;
            group = x;
            member = m;
          }
        }
      }
      if (gain <= 0)
        break;
      Live* out = groups[group][member];
      groups[group].erase(groups[group].begin() + static_cast<std::ptrdiff_t>(member));
      groups.push_back({out});
      free -= out->job->gpus;
    }
    return groups;
  }

  void replan() {
    choose_width_weight();
    for (Live* l : waiting_)
      l->key = key_of(*l);
    std::ranges::stable_sort(waiting_, {}, &Live::key);
    const std::vector<Group> groups = o_.interleave ? interleaved() : first_fit();
    std::vector<char> before;
    for (const Live* l : waiting_)
      before.push_back(l->running);
    for (Live* l : waiting_)
      l->running = false;
    double used = 0;
    for (const Group& g : groups) {
      const double round = rounds_.seconds(g);
      const double overhead = std::accumulate(
          g.begin(), g.end(), 0.0, [](double s, const Live* l) { return s + l->own_overhead_s; });
      used += g[0]->job->gpus;
      for (Live* l : g) {
        if (!std::exchange(l->begun, true))
          result_.first_run_max_s = std::max(result_.first_run_max_s, now_ - l->job->submit_s);
        l->running = true;
        l->round_s = round;
        l->overhead_s = overhead;
        l->end_s = now_ + l->left_s / l->job->iteration_s * round;
      }
    }
    for (std::size_t i = 0; i < waiting_.size(); ++i)
      result_.preemptions += before[i] && !waiting_[i]->running;
    result_.use.emplace_back(now_, used);
  }

  QueueResult summary() {
    result_.jobs = static_cast<std::int64_t>(jcts_.size());
    if (jcts_.empty())
      return std::move(result_);
    std::ranges::sort(jcts_);
    const double n = static_cast<double>(jcts_.size());
    result_.jct_avg_s = std::accumulate(jcts_.begin(), jcts_.end(), 0.0) / n;
    result_.jct_p50_s = jcts_[jcts_.size() / 2];
    result_.jct_p99_s = jcts_[static_cast<std::size_t>(0.99 * (n - 1))];
    result_.wait_avg_s = std::max(0.0, wait_sum_s_ / n);
    result_.gpu_use_pct =
        result_.makespan_s > 0 ? 100.0 * busy_gpu_s_ / (result_.makespan_s * capacity_) : 0;
    return std::move(result_);
  }

  const std::vector<TraceJob>& jobs_;
  QueueOptions o_;
  std::int32_t capacity_;
  Rounds rounds_;
  std::vector<Live> all_;
  std::vector<Live*> arrivals_, waiting_;  // waiting_: arrived and not done, running or not
  double now_ = 0, last_s_ = 0, width_weight_ = 1.0, wait_sum_s_ = 0, busy_gpu_s_ = 0;
  std::uint64_t plans_ = 0;
  std::vector<double> jcts_;
  QueueResult result_;
};

}  // namespace

QueueResult run_queue(const std::vector<TraceJob>& jobs, const QueueOptions& options) {
  return QueueSim(jobs, options).run();
}

}  // namespace billow::sched
