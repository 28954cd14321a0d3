// Errors of the latency model on what its fit did not see.
#pragma once

#include <string>

namespace billow::advise {

// Tables by leaving out loads, configurations, models and GPUs, beside a naive roofline and a fit
// of ten coefficients per engine on the same rows. `only`: "models" or "gpus" alone; empty: all.
void report_latency(const std::string& data, const std::string& only);

}  // namespace billow::advise
