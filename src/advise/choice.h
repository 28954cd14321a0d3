// Choosing under uncertainty: which of several options to take, given their cost and their chance
// of success. The cheapest with a fair chance; but if a little more money buys much more certainty,
// that one. Two options at nearly the same price differ if one works half the time and the other
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
  double chance_min = 0.3;  // options below this are ignored while another is above it
  double extra_max = 0.2;   // of the cheapest fair option's cost, for certainty
};

// Index into `options`, which must not be empty.
std::size_t choose(const std::vector<Choice>& options, const ChoiceRule& rule);

// The chance that a quantity predicted as exp(log_value) with a normal error of `spread` in its
// logarithm stays at or below `limit`.
double chance_below(double log_value, double limit, double spread);

}  // namespace billow::advise
