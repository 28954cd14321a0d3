#include "advise/choice.h"

#include <cmath>

#include "base/check.h"

namespace billow::advise {

std::size_t choose(const std::vector<Choice>& options, const ChoiceRule& rule) {
  BILLOW_CHECK(!options.empty(), "a choice needs options");
  std::size_t cheapest = options.size(), surest = 0;
  for (std::size_t i = 0; i < options.size(); ++i) {
    if (options[i].chance > options[surest].chance)
      surest = i;
    if (options[i].chance >= rule.chance_min &&
        (cheapest == options.size() || options[i].cost < options[cheapest].cost))
      cheapest = i;
  }
  if (cheapest == options.size())
    return surest;
  // Certainty is bought while it gains more probability than it costs as a share of the price.
  std::size_t best = cheapest;
  double base = options[cheapest].cost, worth = options[cheapest].chance;
  for (std::size_t i = 0; i < options.size(); ++i) {
    double extra = base > 0 ? options[i].cost / base - 1 : 0;
    if (options[i].chance < rule.chance_min || extra > rule.extra_max)
      continue;
    if (options[i].chance - extra > worth + 1e-12) {
      best = i;
      worth = options[i].chance - extra;
    }
  }
  return best;
}

double chance_below(double log_value, double limit, double spread) {
  if (!(spread > 0))
    return log_value <= std::log(limit) ? 1 : 0;
  return 0.5 * std::erfc(-(std::log(limit) - log_value) / spread / std::sqrt(2.0));
}

}  // namespace billow::advise
