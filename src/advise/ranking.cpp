#include "advise/ranking.h"

#include <algorithm>

#include "advise/answer/field_rules.h"
#include "advise/choice.h"
#include "advise/pricing.h"

namespace billow::advise {
namespace {

// The options that may be recommended: at a known price, else at an unknown one; among overloaded
// ones only if there is no other.
std::vector<const Candidate*> eligible(const Advice& advice, const Request& request) {
  std::vector<const Candidate*> open;
  auto add = [&](auto&& wanted) {
    for (auto& c : advice.ranked)
      if (acceptable(c, request) && wanted(c))
        open.push_back(&c);
    return !open.empty();
  };
  for (const bool carried : {true, false}) {
    auto priced = [&](const Candidate& c) {
      return overloaded(c) != carried && rank_cost(c, request) < 1e12;
    };
    if (add(priced) || add([&](const Candidate& c) { return overloaded(c) != carried; }))
      return open;
  }
  return open;
}

}  // namespace

bool overloaded(const Candidate& c) {
  return c.tails && !c.tails->keeps_up;
}

void rank(Advice& advice, const Request& request) {
  advice.best.reset();
  advice.runner_up.reset();
  advice.third.reset();
  std::stable_sort(advice.ranked.begin(), advice.ranked.end(), [&](auto& a, auto& b) {
    if (overloaded(a) != overloaded(b))
      return overloaded(b);
    return counted_cost(a, request) < counted_cost(b, request);
  });
  const auto open = eligible(advice, request);
  if (open.empty())
    return;
  std::vector<Choice> choices;
  for (const Candidate* c : open)
    choices.push_back({counted_cost(*c, request), c->chance});
  const Candidate& best =
      *open[choose(choices, {.chance_min = request.chance_min - 0.005, .extra_max = 0.1})];
  advice.best = best;
  auto same = [](const Candidate& a, const Candidate& b) {
    return a.gpu == b.gpu && a.slice == b.slice;
  };
  for (const bool sure : {true, false})
    for (const Candidate* c : open) {
      if (same(*c, best) || (sure && c->chance < request.chance_min - 0.005))
        continue;
      if (!advice.runner_up)
        advice.runner_up = *c;
      else if (!advice.third && !same(*c, *advice.runner_up))
        advice.third = *c;
    }
}

}  // namespace billow::advise
