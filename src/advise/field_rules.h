// Common rules of thumb, checked against an answer: each states whether it applies here, and why.
#pragma once

#include <vector>

#include "advise/recommend.h"

namespace billow::advise {

std::vector<Check> field_rules(const Request& request, const Advice& advice);

}  // namespace billow::advise
