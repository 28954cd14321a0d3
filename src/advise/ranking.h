// The order of the options, and which of them are shown: fresh prices first, then cost. The best is
// chosen by cost and chance (choice.h); the alternatives are the next on other GPUs.
//
// Invariants: an option whose queue grows is never shown while another carries the load.
#pragma once

#include "advise/recommend.h"

namespace billow::advise {

// The replay of its load found that the queue grows without end.
bool overloaded(const Candidate& candidate);
void rank(Advice& advice, const Request& request);

}  // namespace billow::advise
