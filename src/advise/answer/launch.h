// The command that starts what was recommended.
//
// Invariants: it names no checkpoint that was never published; what it asks of a head, that head
// has; it refuses no length that the answer counts with, if memory holds it.
#pragma once

#include "advise/recommend.h"

namespace billow::advise {

std::string launch_text(const Candidate& candidate, const Request& request);
// How the checkpoint gets the precision of the answer: "converted as it is loaded", "needs …";
// empty if it has it.
std::string conversion_text(const Candidate& candidate, const Request& request);
// What to put in place of the name in the command; empty if it can be used as it is.
std::string checkpoint_note(const Candidate& candidate, const Request& request);
// The longest sequence that the engine must accept, in tokens.
double longest_sequence(const Candidate& candidate, const Request& request);

}  // namespace billow::advise
