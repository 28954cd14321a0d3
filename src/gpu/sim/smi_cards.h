// The simulated cards of a job, as the agent describes them to the job's `nvidia-smi`
// (inside/simulated_smi.cpp) in one variable.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace billow {

inline constexpr char smi_variable[] = "BILLOW_SIM_GPUS";

struct SmiInstance {
  std::string profile;
  std::string uuid;
  std::int64_t instance = 0;
  std::int64_t mem_mib = 0;
};

struct SmiCard {
  std::int64_t index = 0;  // among the job's own, from 0
  std::string uuid;
  std::string name;
  std::string bus;
  std::string capability;
  std::int64_t mem_mib = 0;
  std::int64_t limit_mib = 0;  // of the job's slice; 0: the whole card
  std::int64_t milli = 1000;
  std::int64_t power_w = 0;
  std::int64_t idle_w = 0;
  bool mig_on = false;
  std::vector<SmiInstance> mig;  // the job's instances
};

struct SmiCards {
  std::string driver;
  std::string cuda;
  std::vector<SmiCard> cards;
};

std::string smi_cards_text(const SmiCards& cards);
Result<SmiCards> parse_smi_cards(std::string_view text);

}  // namespace billow
