// The typical workload, learned from the jobs that are queued. Placement keeps capacity free for
// it, so it must follow a workload that changes before the fleet is full of the old one's gaps.
//
// Jobs count when they are queued, not when they start: a kind of task that no longer finds
// capacity would otherwise be forgotten just when capacity should be kept for it.
//
// Tasks are counted in windows. A window that looks like the past is added to it: the more is
// known, the less a window changes. A window that could hardly have come from the past reduces the
// past to as many tasks as it has itself, so each further window of the new workload halves what
// is left of the old one. The assumed workload (typical_prior) is a past of a few tasks.
//
// A function of the queued jobs alone, in their order: a replayed journal gives the same values.
#include <algorithm>
#include <array>
#include <utility>

#include "core/sched/index.h"

namespace billow::sched {
namespace {

using Kinds = std::vector<Learned::Kind>;

constexpr double prior_tasks = 16;         // the assumed workload counts as this many
constexpr std::int64_t window_min = 16;    // tasks before the first look at a window…
constexpr std::int64_t window_later = 64;  // …once more than twice as many are known
constexpr double window_max = 512;         // a window of so many always joins the past
constexpr double news_learning = 0.02;     // a model that is less wrong than this is kept…
constexpr double news_settled = 0.1;       // …or than this, once `settled` tasks are known
constexpr double settled = 4096;
constexpr double memory_max = 8192;  // tasks remembered; beyond, all counts are halved
constexpr std::size_t kinds_max = 512;

struct Known {
  double past = 0, window = 0;
};

Known sum_of(const Kinds& kinds) {
  Known sum;
  for (const Learned::Kind& k : kinds) {
    sum.past += k.past;
    sum.window += k.window;
  }
  return sum;
}

// What decides which gaps a task leaves: the number of its cards, and the part of a card.
constexpr std::size_t sizes = 10;
std::size_t size_of(const Resources& r) {
  if (r.takes_node())
    return 9;
  if (r.gpus <= 0)
    return 0;
  if (r.gpus == 1 && !r.share.whole())
    return 1 + static_cast<std::size_t>(std::clamp(r.share.milli, 0, 999)) / 250;
  return r.gpus == 1 ? 5 : r.gpus == 2 ? 6 : r.gpus <= 4 ? 7 : r.gpus <= 8 ? 8 : 9;
}

// Whether the window and the past hardly come from one workload: chi-squared of their histograms,
// above what one pair in ten thousand reaches. What is expected less than once counts as expected
// once, so that a single task of a new size is no change.
bool differs(const Kinds& kinds, const Known& all) {
  constexpr std::array<double, sizes> limits{0,    15.1, 18.4, 21.1, 23.5,
                                             25.7, 27.9, 29.9, 31.8, 33.7};
  std::array<Known, sizes> by_size{};
  for (const Learned::Kind& k : kinds) {
    by_size[size_of(k.resources)].past += k.past;
    by_size[size_of(k.resources)].window += k.window;
  }
  if (all.past <= 0 || all.window <= 0)
    return false;
  const double least = (all.past + all.window) / all.window;
  double chi = 0;
  std::size_t seen = 0;
  for (const Known& n : by_size) {
    seen += n.past + n.window > 0;
    const double off = n.window * all.past - n.past * all.window;
    chi += off * off / (all.past * all.window * std::max(n.past + n.window, least));
  }
  return seen > 1 && chi > limits[seen - 1];
}

// The window becomes part of the past, of which `keep` remains.
void join(Learned& l, double keep) {
  for (Learned::Kind& k : l.recent)
    k.past = k.past * keep + std::exchange(k.window, 0.0);
}

void adopt(Learned& l) {
  l.typical.clear();
  for (const Learned::Kind& k : l.recent) {
    if (k.past > 0)
      l.typical.emplace_back(k.resources, k.past);
  }
}

// How much of all tasks is of other kinds than the model was built for: 0 to 1.
double news(const Learned& l, double known) {
  double modelled = 0, common = 0;
  for (const auto& [resources, count] : l.typical)
    modelled += count;
  auto likely = l.typical.begin();  // both lists have nearly the same order
  for (const Learned::Kind& k : l.recent) {
    auto at = likely;
    if (at == l.typical.end() || at->first != k.resources)
      at = std::ranges::find(l.typical, k.resources, &std::pair<Resources, double>::first);
    if (at == l.typical.end())
      continue;
    common += std::min(k.past / known, at->second / modelled);
    likely = std::next(at);
  }
  return 1 - common;
}

// At the end of a window, or of a part of it. True: `typical` has changed.
bool look(Learned& l) {
  const Known all = sum_of(l.recent);
  const bool changed = differs(l.recent, all);
  if (!changed && all.window < std::min(window_max, all.past)) {
    l.next_at = l.tasks + static_cast<std::int64_t>(all.window);
    return false;
  }
  const double kept = changed ? std::min(1.0, all.window / all.past) : 1.0;
  double known = all.past * kept + all.window;
  join(l, kept);
  if (known >= memory_max) {
    known /= 2;
    join(l, 0.5);
    std::erase_if(l.recent, [](const Learned::Kind& k) { return k.past < 0.5; });
  }
  l.next_at = l.tasks + (known > 2 * window_later ? window_later : window_min);
  if (!changed && news(l, known) <= (known < settled ? news_learning : news_settled))
    return false;
  adopt(l);
  return true;
}

}  // namespace

bool learn(Learned& l, const Resources& resources, std::int64_t tasks, std::size_t& hint) {
  if (l.recent.empty()) {
    double all = 0;
    for (const auto& [kind, weight] : typical_prior())
      all += weight;
    for (const auto& [kind, weight] : typical_prior())
      l.recent.push_back({.resources = kind, .past = prior_tasks * weight / all});
  }
  if (hint >= l.recent.size() || l.recent[hint].resources != resources)
    hint = static_cast<std::size_t>(
        std::ranges::find(l.recent, resources, &Learned::Kind::resources) - l.recent.begin());
  if (hint == l.recent.size() && hint < kinds_max)
    l.recent.push_back({.resources = resources});
  if (hint == l.recent.size()) {  // the rarest makes room
    const auto rarest = std::ranges::min_element(
        l.recent, {}, [](const Learned::Kind& k) { return k.past + k.window; });
    *rarest = {.resources = resources};
    hint = static_cast<std::size_t>(rarest - l.recent.begin());
  }
  l.recent[hint].window += static_cast<double>(tasks);
  l.tasks += tasks;
  return l.tasks >= l.next_at && look(l);
}

}  // namespace billow::sched
