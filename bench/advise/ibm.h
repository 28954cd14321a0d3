// The LLM-Pilot recommendation benchmark, by its published definition: for each of ten language
// models, unseen in the fit, choose a GPU type and a number of pods for 200 users with a normalised
// time to first token of at most 100 ms per input token and a time between tokens of at most 50 ms.
// Success: the pods chosen carry the users by the measurements. Overspend: over the cheapest choice
// that does, averaged over successes. Score: harmonic mean of success and max(0, 1 − overspend).
#pragma once

#include <string>

namespace billow::advise {
void report_ibm(const std::string& directory);
}
