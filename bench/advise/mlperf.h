// Published throughput against what the shipped model predicts for it.
#pragma once

#include <string>

namespace billow::advise {

// `facts` is a CSV of results (mlperf_v5.1.csv, which names its source).
void report_mlperf(const std::string& facts);
// `table` is a CSV of throughput that TensorRT-LLM publishes for its engine.
void report_steady(const std::string& table);

}  // namespace billow::advise
