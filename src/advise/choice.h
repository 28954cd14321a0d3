// Choosing under doubt: of options with a cost and a chance of doing what is asked, which one to
// take. The cheapest with a fair chance; but when a little more money buys much more certainty,
// that. Two options at nearly one price are not alike when one works half the time and the other
// always.
//
// Invariants: the choice is an option; without a fair one it is the surest.
#pragma once

#include <cstddef>
#include <vector>

namespace billow::advise {

struct Choice {
  double cost = 0;
  double chance = 0;  // 0 to 1
};

struct ChoiceRule {
  double chance_min = 0.3;  // below it an option is not considered while another is above
  double extra_max = 0.2;   // of the cheapest fair option's cost, for certainty
};

// Index into `options`, which must not be empty.
std::size_t choose(const std::vector<Choice>& options, const ChoiceRule& rule);

// The chance that a quantity predicted as exp(log_value) with a normal error of `spread` in its
// logarithm stays at or below `limit`.
double chance_below(double log_value, double limit, double spread);

}  // namespace billow::advise
