// The rules of thumb of the field, checked against an answer: each says whether it holds here, and
// why.
#pragma once

#include <vector>

#include "advise/recommend.h"

namespace billow::advise {

std::vector<Check> field_rules(const Request& request, const Advice& advice);

}  // namespace billow::advise
