// Advice requested as a JSON document, for the API: the same fields as the options of `billow
// advise`. No file is ever read by name.
#pragma once

#include <span>

#include "advise/recommend.h"

namespace billow::advise {

struct AskContext {
  std::string data_dir;         // imported prices and own measurements
  std::vector<FleetGpu> fleet;  // for "mine": true
  WallTime now;
};
// {"model": "7B"} or {"config": {…a config.json…}} with any of the fields below; unknown ones are
// refused by name. openapi.json describes them, and a test compares.
std::span<const char* const> advice_question_fields();
Result<Json> answer(const Json& question, const AskContext& context);

}  // namespace billow::advise
