// `billow advise`, `billow prices` and `billow plan`: options in, text or JSON out. They touch
// nothing but the files named to them; what only a running head knows comes in through the context.
#pragma once

#include <string>
#include <vector>

#include "advise/recommend.h"
#include "advise/review.h"

namespace billow::advise {

struct CommandContext {
  std::string data_dir;  // where imported prices are kept (prices.csv); empty: nothing is kept
  std::string
      models_dir;  // where models named by name are looked for, unless --models says otherwise
  std::vector<FleetGpu> fleet;  // for --mine
  std::vector<ServingRow>
      measured;  // this installation's own measurements, beside those kept in the data directory
  std::vector<UsedSpan>
      used;  // what the head's jobs used, for plan; with what was asked of the head:
  bool asked_head = false;
  WallTime now;
};

struct CommandResult {
  int exit_code = 0;  // 0; 1: no answer; 2: wrong options
  std::string out, err;
};

CommandResult run_advise(const std::vector<std::string>& args, const CommandContext& context);
CommandResult run_prices(const std::vector<std::string>& args, const CommandContext& context);
CommandResult run_plan(const std::vector<std::string>& args, const CommandContext& context);

// The catalogue with what was imported laid over it.
Result<Catalogue> catalogue_with_imports(const std::string& data_dir);

}  // namespace billow::advise
