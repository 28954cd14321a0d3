// Advice requested as a JSON document, for the API: the same fields as the options of `billow
// advise`. No file is ever read by name.
#pragma once

#include "advise/recommend.h"

namespace billow::advise {

struct AskContext {
  std::string data_dir;         // imported prices and own measurements
  std::vector<FleetGpu> fleet;  // for "mine": true
  WallTime now;
};
// {"model": "7B"} or {"config": {…a config.json…}}, with precision, context, input, output,
// ttft_ms, tps, percentile, input_p95, output_p95, users, rps, engine, engine_version, providers,
// regions, spot, mine; or "train": true with tuning, sequence, micro_batch, tokens. Unknown fields
// are refused by name.
Result<Json> answer(const Json& question, const AskContext& context);

}  // namespace billow::advise
