// Which effects scale the physical terms of a row: what it shares with other rows (engine, GPU,
// precision, model family …), and how far each may vary before any measurement.
//
// Invariants: rows with equal keys have equal effects; a key is one word of the calibration's file.
#pragma once

#include <string>

#include "advise/fit/efficiency.h"
#include "advise/serving_row.h"

namespace billow::advise {

// The inputs of fitting and prediction: the physical terms and the effects of one row.
Sample tpot_sample(const ServingRow& row);
Sample ttft_sample(const ServingRow& row);

// Of tpot_term_names(): the terms of prompts that others send meanwhile.
inline constexpr unsigned others_prefill_terms = 1u << 7 | 1u << 8;

// Model, GPU, engine, precision, ranks and lengths.
std::string series_key(const ServingRow& row);
// GPUs of one architecture run the same kernels: an unseen one borrows from its relatives.
std::string architecture_word(const GpuSpec& gpu);
// Any text as one word of the calibration's file.
std::string one_word(std::string text);

}  // namespace billow::advise
