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

}  // namespace billow::advise
