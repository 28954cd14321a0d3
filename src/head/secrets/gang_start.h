// What the tasks of one attempt of a gang share, made from the head's key: the proof by which they
// recognise each other at their start barrier, and the port at which they meet. Processes of a job
// on one node (`--procs`) meet there, too.
#pragma once

#include <string_view>

#include "core/wire/agent_v1.h"

namespace billow::head {

void complete_gang_start(std::string_view key, wire::agent_v1::Start& start);

}  // namespace billow::head
