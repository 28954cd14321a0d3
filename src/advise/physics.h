// The physics of serving: how long a step takes at least, and the terms that the calibration
// scales. Every term is a time that follows from the model, the GPU's datasheet, the split and the
// load; the base factors in physics.cpp say how far good kernels stay below the datasheet.
//
// Invariants: terms are ≥ 0 and one is > 0; a batch never exceeds what memory holds; a token passes
// all pipeline stages, so stages never make it faster.
#pragma once

#include <string>
#include <vector>

#include "advise/serving_row.h"

namespace billow::advise {

// The rates at which a row's kernels run at most, in operations and bytes per second.
struct Rates {
  double bandwidth = 0, matrix = 0, half = 0, attention = 0, link = 0;
};
Rates rates_of(const ServingRow& row);

// Sequences that one replica decodes at once: the load, or what the memory beside the weights
// holds. The others wait.
double decode_batch(const ServingRow& row);

// At 100 % of the datasheet's bandwidth and tensor rate: nothing is faster.
struct Roofline {
  double tpot_ms = 0, ttft_ms = 0;
};
Roofline roofline_of(const ServingRow& row);

// The measured rows that can be true. A time below the roofline cannot be that of the load it is
// listed with: the engine ran fewer sequences at once, or answered from a cache of prompts. Such
// rows teach nothing about kernels, nor do the others of a combination where many are like that.
std::vector<ServingRow> possible_runs(std::vector<ServingRow> rows);

// One request's prefill on good kernels, in milliseconds.
double prefill_ms(const ServingRow& row);

struct Terms {
  std::vector<double> tpot, ttft;
};
Terms terms_of(const ServingRow& row);
const std::vector<std::string>& tpot_term_names();

}  // namespace billow::advise
