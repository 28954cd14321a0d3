#include "core/sched/pack.h"

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
  return {{task(1, 1000, 8000), 5},  {task(1, 500, 4000), 1},   {task(1, 250, 2000), 1},
          {task(2, 1000, 16000), 1}, {task(4, 1000, 32000), 1}, {task(8, 1000, 64000), 2}};
}

namespace {

// The milli-GPUs that a share takes of a typical card; a share that names only memory counts as
// half a card.
std::int32_t milli_of(const Resources& r) {
  if (r.gpus == 0)
    return 0;
  if (r.share.milli > 0)
    return r.share.milli;
  return r.mig_profile.empty() ? 500 : 0;
}

bool wants_type(const Resources& r, const std::string& type) {
  return r.gpu_types.empty() || std::ranges::find(r.gpu_types, type) != r.gpu_types.end();
}

}  // namespace

PackModel::PackModel(const Typical& typical,
                     const std::map<std::string, std::int64_t>& capacity,
                     PackWeights weights)
    : weights_(weights) {
  for (const auto& [name, count] : capacity)
    names_.emplace(name, static_cast<int>(names_.size()));
  types_.resize(names_.size());
  weigh_types(typical, capacity);
  fill_cores_per_gpu(typical);
  double covered = 0;
  const std::vector<PopularTask> popular = popular_tasks(typical, covered);
  for (const auto& [name, index] : names_) {
    Type& type = types_[static_cast<std::size_t>(index)];
    std::map<std::pair<std::int32_t, std::int32_t>, std::map<std::int64_t, double>> grouped;
    std::map<std::int32_t, double> shares;
    for (const PopularTask& task : popular) {
      if (task.gpus == 0 || task.milli == 0 ||
          (!task.types.empty() && std::ranges::find(task.types, name) == task.types.end()))
        continue;
      grouped[{task.milli, task.gpus}][task.cpu_milli] += task.weight / covered;
      shares[task.milli] += task.weight;
    }
    fill_usable(type, grouped);
    fill_within(type);
    fill_waste(type, shares);
  }
}

// The mean of each quarter, by GPUs asked for.
void PackModel::fill_cores_per_gpu(const Typical& typical) {
  constexpr int parts = 4;
  std::vector<std::pair<double, double>> demand;  // milli-cores per GPU, GPUs
  double gpus = 0, cores_with_gpus = 0, cores = 0;
  for (const auto& [r, w] : typical) {
    const double asked = r.gpus * milli_of(r) / 1000.0;
    cores += w * static_cast<double>(r.cpu_milli);
    if (asked <= 0)
      continue;
    cores_with_gpus += w * static_cast<double>(r.cpu_milli);
    gpus += w * asked;
    demand.emplace_back(static_cast<double>(r.cpu_milli) / asked, w * asked);
  }
  if (gpus <= 0 || cores_with_gpus <= 0)
    return;
  std::ranges::sort(demand);
  const double part = gpus / parts, others = cores / cores_with_gpus;
  double filled = 0, sum = 0;
  for (auto [ratio, left] : demand) {
    while (left > 0) {
      const double taken = std::min(left, part - filled);
      sum += taken * ratio;
      filled += taken;
      left -= taken;
      if (filled < part)
        break;
      cores_per_gpu_.push_back(others * sum / part);
      filled = sum = 0;
    }
  }
  if (filled > part / 2)  // the last one, short by rounding
    cores_per_gpu_.push_back(others * sum / filled);
  std::erase(cores_per_gpu_, 0.0);
}

// How much of each type the jobs bound to it would take if the typical workload filled all GPUs
// once.
void PackModel::weigh_types(const Typical& typical,
                            const std::map<std::string, std::int64_t>& capacity) {
  double gpus = 0;
  double capacity_all = 0;
  for (const auto& [name, count] : capacity)
    capacity_all += static_cast<double>(count);
  for (const auto& [r, w] : typical)
    gpus += w * r.gpus * milli_of(r) / 1000.0;
  for (const auto& [r, w] : typical) {
    if (r.gpus == 0 || r.gpu_types.empty() || gpus <= 0)
      continue;
    double reachable = 0;
    for (const auto& [name, count] : capacity)
      reachable += wants_type(r, name) ? static_cast<double>(count) : 0;
    if (reachable <= 0)
      continue;
    for (const auto& [name, index] : names_) {
      if (wants_type(r, name))
        types_[static_cast<std::size_t>(index)].scarcity +=
            w * r.gpus * milli_of(r) / 1000.0 / gpus * capacity_all / reachable;
    }
  }
}

// The most frequent kinds of task that make up most of the work. Only cores and GPUs matter here,
// so kinds that agree in them are merged.
std::vector<PackModel::PopularTask> PackModel::popular_tasks(const Typical& typical,
                                                             double& covered) const {
  std::map<std::tuple<std::int64_t, std::int32_t, std::int32_t, std::vector<std::string>>, double>
      merged;
  double all = 0;
  for (const auto& [r, w] : typical) {
    std::vector<std::string> names;  // only types that exist, in one order
    for (const auto& [name, index] : names_) {
      if (r.gpus > 0 && !r.gpu_types.empty() && wants_type(r, name))
        names.push_back(name);
    }
    if (r.gpus > 0 && !r.gpu_types.empty() && names.empty())
      continue;
    merged[{r.cpu_milli, r.gpus, milli_of(r), names}] += w;
    all += w;
  }
  std::vector<PopularTask> popular;
  for (const auto& [key, w] : merged) {
    const auto& [cpu_milli, gpus, milli, types] = key;
    popular.push_back({w, cpu_milli, gpus, milli, types});
  }
  std::ranges::stable_sort(popular, std::greater<>{}, &PopularTask::weight);
  covered = 0;
  std::size_t keep = 0;
  while (keep < popular.size() && covered < weights_.typical_part * all)
    covered += popular[keep++].weight;
  popular.resize(keep);
  return popular;
}

// Expected waste of a card, smallest remainders first: the mean waste after the next share,
// weighted towards good fits.
void PackModel::fill_waste(Type& type, const std::map<std::int32_t, double>& shares) const {
  type.waste.resize(whole_gpu_milli + 1);
  for (std::int32_t left = 0; left <= whole_gpu_milli; ++left) {
    double sum = 0;
    double weight = 0;
    for (const auto& [milli, w] : shares) {
      if (milli > left)
        break;
      const double rest = type.waste[static_cast<std::size_t>(left - milli)];
      const double towards = w * std::exp(-weights_.fit_bias * rest);
      sum += towards * rest;
      weight += towards;
    }
    type.waste[static_cast<std::size_t>(left)] =
        static_cast<float>(weight > 0 ? sum / weight : left / 1000.0);
  }
}

int PackModel::type_of(const std::string& gpu_type) const {
  auto it = names_.find(gpu_type);
  return it == names_.end() ? -1 : it->second;
}

void PackModel::fill_usable(Type& type,
                            const std::map<std::pair<std::int32_t, std::int32_t>,
                                           std::map<std::int64_t, double>>& grouped) const {
  for (const auto& [key, by_cpu] : grouped) {
    if (type.levels.empty() || type.levels.back() != key.first)
      type.levels.push_back(key.first);
    type.cards_max = std::max(type.cards_max, key.second);
    for (const auto& [cpu, w] : by_cpu)
      type.cpu_steps.push_back(cpu);
  }
  std::ranges::sort(type.cpu_steps);
  type.cpu_steps.erase(std::unique(type.cpu_steps.begin(), type.cpu_steps.end()),
                       type.cpu_steps.end());
  const std::size_t width = static_cast<std::size_t>(type.cards_max) + 1,
                    row = type.levels.size() * width;
  type.usable.assign((type.cpu_steps.size() + 1) * row, 0.0);
  for (const auto& [key, by_cpu] : grouped) {
    const auto level = static_cast<std::size_t>(std::ranges::lower_bound(type.levels, key.first) -
                                                type.levels.begin());
    for (const auto& [cpu, w] : by_cpu) {
      // It can use a card if at least its cores and at least its number of cards are free.
      for (std::size_t r = type.rank(cpu); r <= type.cpu_steps.size(); ++r) {
        for (auto n = static_cast<std::size_t>(key.second); n < width; ++n)
          type.usable[r * row + level * width + n] += w;
      }
    }
  }
}

void PackModel::fill_within(Type& type) {
  type.within.resize(whole_gpu_milli + 1);
  for (std::int32_t milli = 0; milli <= whole_gpu_milli; ++milli)
    type.within[static_cast<std::size_t>(milli)] = static_cast<std::uint16_t>(
        std::ranges::upper_bound(type.levels, milli) - type.levels.begin());
}

std::size_t PackModel::Type::rank(std::int64_t cpu_milli) const {
  return static_cast<std::size_t>(std::upper_bound(cpu_steps.begin(), cpu_steps.end(), cpu_milli) -
                                  cpu_steps.begin());
}

void PackModel::look(const PackNode& node, PackView& out) const {
  out.type = node.type;
  out.cpu_milli = node.cpu_milli;
  out.idle_milli = 0;
  for (int i = 0; i < node.gpus; ++i)
    out.idle_milli += node.free[static_cast<std::size_t>(i)];
  out.stranded = stranded(out.idle_milli, out.cpu_milli);
  out.levels.clear();
  out.reached = 0;
  double usable = 0;
  if (node.type >= 0) {
    const Type& type = types_[static_cast<std::size_t>(node.type)];
    out.levels.resize(type.levels.size());
    // Each card is counted at the highest level that it reaches, then also at the lower ones.
    for (int i = 0; i < node.gpus; ++i) {
      const std::int32_t left = node.free[static_cast<std::size_t>(i)];
      const std::size_t within = type.levels_within(left);
      if (within == 0)
        continue;
      PackView::Level& highest = out.levels[within - 1];
      ++highest.cards;
      highest.sum += left;
      out.reached = std::max(out.reached, within);
    }
    for (std::size_t l = out.reached; l-- > 1;) {
      out.levels[l - 1].cards += out.levels[l].cards;
      out.levels[l - 1].sum += out.levels[l].sum;
    }
    const double* weight = type.row(node.cpu_milli);
    for (std::size_t l = 0; l < out.reached; ++l, weight += type.cards_max + 1)
      usable += weight[std::min(out.levels[l].cards, type.cards_max)] * out.levels[l].sum;
  }
  out.fragment = (static_cast<double>(out.idle_milli) - usable) / 1000.0;
}

double PackModel::fragment(const PackNode& node) const {
  PackView view;
  look(node, view);
  return view.fragment;
}

double PackModel::card_waste(int type, std::int32_t free_milli) const {
  if (type < 0)
    return 0;
  return types_[static_cast<std::size_t>(type)]
      .waste[static_cast<std::size_t>(std::clamp(free_milli, 0, whole_gpu_milli))];
}

double PackModel::stranded(std::int64_t idle_milli, std::int64_t cpu_milli) const {
  if (cores_per_gpu_.empty())
    return 0;
  const double idle = static_cast<double>(idle_milli) / 1000.0;
  // The most demanding quarter is fed: so are the others.
  if (static_cast<double>(cpu_milli) / cores_per_gpu_.back() >= idle)
    return 0;
  double sum = 0;
  for (const double cores : cores_per_gpu_)
    sum += std::max(0.0, idle - static_cast<double>(cpu_milli) / cores);
  return sum / static_cast<double>(cores_per_gpu_.size());
}

double PackModel::finish(const PackView& before,
                         double fragment_after,
                         double waste,
                         std::int64_t idle_after,
                         std::int64_t cpu_after) const {
  double total = fragment_after - before.fragment + weights_.card * waste;
  total += weights_.stranded * (stranded(idle_after, cpu_after) - before.stranded);
  if (before.type >= 0)
    total += weights_.scarce * types_[static_cast<std::size_t>(before.type)].scarcity *
             static_cast<double>(before.idle_milli - idle_after) / 1000.0;
  return total + weights_.cores_left * static_cast<double>(cpu_after) / 128000.0 +
         weights_.gpus_left * static_cast<double>(idle_after) / 8000.0;
}

double PackModel::score_card(const PackView& before,
                             std::int32_t free,
                             std::int32_t rest,
                             std::int64_t cpu_after,
                             std::int32_t cards) const {
  const std::int64_t idle = before.idle_milli - std::int64_t{cards} * (free - rest);
  if (before.type < 0)
    return finish(before, static_cast<double>(idle) / 1000.0, 0, idle, cpu_after);
  const Type& type = types_[static_cast<std::size_t>(before.type)];
  const int most = type.cards_max;
  const double* weight = type.row(cpu_after);
  double usable = 0;
  // Levels that the cards still reach, levels that they reached before, and the others.
  const PackView::Level* level = before.levels.data();
  const PackView::Level *kept = level + type.levels_within(rest),
                        *lost = level + type.levels_within(free), *end = level + before.reached;
  for (; level < kept; ++level, weight += most + 1)
    usable += weight[std::min(level->cards, most)] * (level->sum - cards * (free - rest));
  for (; level < lost; ++level, weight += most + 1)
    usable += weight[std::min(level->cards - cards, most)] * (level->sum - cards * free);
  for (; level < end; ++level, weight += most + 1)
    usable += weight[std::min(level->cards, most)] * level->sum;
  const double each = static_cast<double>(type.waste[static_cast<std::size_t>(rest)]) -
                      static_cast<double>(type.waste[static_cast<std::size_t>(free)]);
  double waste = each;
  for (std::int32_t more = 1; more < cards; ++more)
    waste += each;
  return finish(before, (static_cast<double>(idle) - usable) / 1000.0, waste, idle, cpu_after);
}

double PackModel::score_cores(const PackView& before, std::int64_t cpu_after) const {
  double usable = 0;
  if (before.type >= 0) {
    const Type& type = types_[static_cast<std::size_t>(before.type)];
    const double* weight = type.row(cpu_after);
    for (const PackView::Level& level : before.levels) {
      usable += weight[std::min(level.cards, type.cards_max)] * level.sum;
      weight += type.cards_max + 1;
    }
  }
  return finish(before, (static_cast<double>(before.idle_milli) - usable) / 1000.0, 0,
                before.idle_milli, cpu_after);
}

double PackModel::score_cards(const PackNode& before_node,
                              const PackView& before,
                              const PackNode& after) const {
  std::int64_t idle = 0;
  double waste = 0;
  for (int i = 0; i < after.gpus; ++i) {
    const std::int32_t b = before_node.free[static_cast<std::size_t>(i)],
                       a = after.free[static_cast<std::size_t>(i)];
    idle += a;
    if (a != b)
      waste += card_waste(before.type, a) - card_waste(before.type, b);
  }
  double usable = 0;
  if (before.type >= 0) {
    const Type& type = types_[static_cast<std::size_t>(before.type)];
    const double* weight = type.row(after.cpu_milli);
    for (std::size_t l = 0; l < type.levels.size() && before.levels[l].cards > 0;
         ++l, weight += type.cards_max + 1) {
      PackView::Level level;
      for (int i = 0; i < after.gpus; ++i) {
        const std::int32_t left = after.free[static_cast<std::size_t>(i)];
        if (left >= type.levels[l]) {
          ++level.cards;
          level.sum += left;
        }
      }
      usable += weight[std::min(level.cards, type.cards_max)] * level.sum;
    }
  }
  return finish(before, (static_cast<double>(idle) - usable) / 1000.0, waste, idle,
                after.cpu_milli);
}

}  // namespace billow::sched
