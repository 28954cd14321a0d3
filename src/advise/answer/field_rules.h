// Common rules of thumb, checked against an answer: each states whether it applies here, and why.
#pragma once

#include <vector>

#include "advise/recommend.h"

namespace billow::advise {

std::vector<Check> field_rules(const Request& request, const Advice& advice);

// Fewer bits than the checkpoint cost quality, so they are chosen only on request.
bool acceptable(const Candidate& c, const Request& request);
// Adds what would change the answer: other precisions, spot, a looser limit, a measurement.
void explain_changes(Advice& advice, const Request& request);

// What the same GPU would cost if the prediction were exact: that is what a load test can save.
inline constexpr double even_chance = 0.5;  // no margin for errors of the prediction
void say_cost_of_certainty(Advice& advice,
                           Request request,
                           const Catalogue& catalogue,
                           const Calibration& calibration);

}  // namespace billow::advise
