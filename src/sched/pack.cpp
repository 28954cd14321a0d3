#include "sched/pack.h"

#include <algorithm>
#include <cmath>

namespace billow::sched {

std::vector<std::pair<Resources, double>> typical_prior() {
  const auto task = [](std::int32_t gpus, std::int32_t milli, std::int64_t cpu) {
    Resources r;
    r.gpus = gpus;
    r.share.milli = milli;
    r.cpu_milli = cpu;
    return r;
  };
  return {{task(1, 1000, 8000), 5}, {task(1, 500, 4000), 1}, {task(1, 250, 2000), 1},
          {task(2, 1000, 16000), 1}, {task(4, 1000, 32000), 1}, {task(8, 1000, 64000), 2}};
}

namespace {

// The milli a share asks of a typical card; work that names only memory counts by no particular card, as a half.
std::int32_t milli_of(const Resources& r) {
  if (r.gpus == 0) return 0;
  if (r.share.milli > 0) return r.share.milli;
  return r.mig_profile.empty() ? 500 : 0;
}

bool wants_type(const Resources& r, const std::string& type) {
  return r.gpu_types.empty() || std::ranges::find(r.gpu_types, type) != r.gpu_types.end();
}

}  // namespace

PackModel::PackModel(const std::vector<std::pair<Resources, double>>& typical, const std::map<std::string, std::int64_t>& capacity,
                     PackWeights weights)
    : weights_(weights) {
  for (const auto& [name, count] : capacity) names_.emplace(name, static_cast<int>(names_.size()));
  types_.resize(names_.size());

  // Cores per GPU, and how much of each type the type-bound work would take, were all the typical work to fill the GPUs once.
  double gpus = 0, cpus = 0, capacity_all = 0;
  for (const auto& [name, count] : capacity) capacity_all += static_cast<double>(count);
  for (const auto& [r, w] : typical) {
    gpus += w * r.gpus * milli_of(r) / 1000.0;
    cpus += w * static_cast<double>(r.cpu_milli);
  }
  cpu_per_gpu_ = gpus > 0 ? weights_.cores_per_gpu * cpus / gpus : 0;
  for (const auto& [r, w] : typical) {
    if (r.gpus == 0 || r.gpu_types.empty() || gpus <= 0) continue;
    double reachable = 0;
    for (const auto& [name, count] : capacity) reachable += wants_type(r, name) ? static_cast<double>(count) : 0;
    if (reachable <= 0) continue;
    for (const auto& [name, index] : names_) {
      if (wants_type(r, name)) types_[static_cast<std::size_t>(index)].scarcity += w * r.gpus * milli_of(r) / 1000.0 / gpus * capacity_all / reachable;
    }
  }

  // The most frequent kinds of task that make up most of the work. Only cores and GPUs matter here, so others are merged.
  std::map<std::tuple<std::int64_t, std::int32_t, std::int32_t, std::vector<std::string>>, double> merged;
  double all = 0;
  for (const auto& [r, w] : typical) {
    std::vector<std::string> names;  // only types that exist, in one order
    for (const auto& [name, index] : names_) {
      if (r.gpus > 0 && !r.gpu_types.empty() && wants_type(r, name)) names.push_back(name);
    }
    if (r.gpus > 0 && !r.gpu_types.empty() && names.empty()) continue;
    merged[{r.cpu_milli, r.gpus, milli_of(r), names}] += w;
    all += w;
  }
  std::vector<std::pair<double, std::tuple<std::int64_t, std::int32_t, std::int32_t, std::vector<std::string>>>> popular;
  for (const auto& [key, w] : merged) popular.emplace_back(w, key);
  std::ranges::stable_sort(popular, std::greater<>{}, [](const auto& p) { return p.first; });
  double covered = 0;
  std::size_t keep = 0;
  while (keep < popular.size() && covered < weights_.typical_part * all) covered += popular[keep++].first;
  popular.resize(keep);

  for (const auto& [name, index] : names_) {
    Type& type = types_[static_cast<std::size_t>(index)];
    std::map<std::pair<std::int32_t, std::int32_t>, std::map<std::int64_t, double>> grouped;
    std::map<std::int32_t, double> shares;
    for (const auto& [w, key] : popular) {
      const auto& [cpu, gpu_count, milli, only] = key;
      if (gpu_count == 0 || milli == 0 || (!only.empty() && std::ranges::find(only, name) == only.end())) continue;
      grouped[{milli, gpu_count}][cpu] += w / covered;
      shares[milli] += w;
    }
    for (const auto& [key, by_cpu] : grouped) {
      Group group{.milli = key.first, .gpus = key.second};
      double sum = 0;
      for (const auto& [cpu, w] : by_cpu) {
        group.cpu_milli.push_back(cpu);
        group.weight_up_to.push_back(sum += w);
      }
      type.groups.push_back(std::move(group));
    }
    // Expected waste of a card, smallest remainders first: each is what the next share leaves, weighted towards good fits.
    type.waste.resize(whole_gpu_milli + 1);
    for (std::int32_t left = 0; left <= whole_gpu_milli; ++left) {
      double sum = 0, weight = 0;
      for (const auto& [milli, w] : shares) {
        if (milli > left) break;
        const double rest = type.waste[static_cast<std::size_t>(left - milli)];
        const double towards = w * std::exp(-weights_.fit_bias * rest);
        sum += towards * rest;
        weight += towards;
      }
      type.waste[static_cast<std::size_t>(left)] = static_cast<float>(weight > 0 ? sum / weight : left / 1000.0);
    }
  }
}

int PackModel::type_of(const std::string& gpu_type) const {
  auto it = names_.find(gpu_type);
  return it == names_.end() ? -1 : it->second;
}

double PackModel::fragment(const PackNode& node) const {
  std::int64_t idle = 0;
  for (int i = 0; i < node.gpus; ++i) idle += node.free[static_cast<std::size_t>(i)];
  if (idle == 0 || node.type < 0) return static_cast<double>(idle) / 1000.0;
  double usable = 0;
  std::int32_t level = -1, cards = 0;
  std::int64_t sum = 0;
  for (const Group& g : types_[static_cast<std::size_t>(node.type)].groups) {
    if (g.milli != level) {
      level = g.milli;
      cards = 0;
      sum = 0;
      for (int i = 0; i < node.gpus; ++i) {
        const std::int32_t left = node.free[static_cast<std::size_t>(i)];
        if (left >= level) { ++cards; sum += left; }
      }
      if (cards == 0) break;  // groups rise in milli: none of the rest fits either
    }
    if (cards < g.gpus) continue;
    const auto at = std::upper_bound(g.cpu_milli.begin(), g.cpu_milli.end(), node.cpu_milli) - g.cpu_milli.begin();
    if (at > 0) usable += g.weight_up_to[static_cast<std::size_t>(at - 1)] * static_cast<double>(sum);
  }
  return (static_cast<double>(idle) - usable) / 1000.0;
}

double PackModel::card_waste(int type, std::int32_t free_milli) const {
  if (type < 0) return 0;
  return types_[static_cast<std::size_t>(type)].waste[static_cast<std::size_t>(std::clamp(free_milli, 0, whole_gpu_milli))];
}

double PackModel::score(const PackNode& before, double before_fragment, const PackNode& after) const {
  std::int64_t idle_before = 0, idle_after = 0;
  double waste = 0;
  for (int i = 0; i < before.gpus; ++i) {
    const std::int32_t b = before.free[static_cast<std::size_t>(i)], a = after.free[static_cast<std::size_t>(i)];
    idle_before += b;
    idle_after += a;
    if (a != b) waste += card_waste(before.type, a) - card_waste(before.type, b);
  }
  const double gpus_before = static_cast<double>(idle_before) / 1000.0, gpus_after = static_cast<double>(idle_after) / 1000.0;
  double total = fragment(after) - before_fragment + weights_.card * waste;
  if (cpu_per_gpu_ > 0) {
    const double stranded_after = std::max(0.0, gpus_after - static_cast<double>(after.cpu_milli) / cpu_per_gpu_);
    const double stranded_before = std::max(0.0, gpus_before - static_cast<double>(before.cpu_milli) / cpu_per_gpu_);
    total += weights_.stranded * (stranded_after - stranded_before);
  }
  if (before.type >= 0) total += weights_.scarce * types_[static_cast<std::size_t>(before.type)].scarcity * (gpus_before - gpus_after);
  total += weights_.cores_left * static_cast<double>(after.cpu_milli) / 128000.0 + weights_.gpus_left * gpus_after / 8.0;
  return total;
}

}  // namespace billow::sched
