// Public results of MLPerf Inference against what the shipped model predicts for them.
#pragma once

#include <string>

namespace billow::advise {

// `facts` is a CSV of results (mlperf_v5.1.csv, which names its source).
void report_mlperf(const std::string& facts);

}  // namespace billow::advise
