// Why something waits, as the head explains it, for people. The machine-readable kinds of the
// reasons (no_room, quota, …) stay in --json.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/json.h"

namespace billow::client {

// "job 4 is queued and should start in 9 min, at 14:10, at the latest": the answer in one sentence.
std::string explanation_sentence(const std::string& label, const Json& why, WallTime now);
// One indented line for each reason, for what would help, and for the expected start.
std::string explanation_text(const Json& why, WallTime now);

}  // namespace billow::client
