// Which of a node's readings are believed. They come with every heartbeat, feed history, metrics
// and the display of idleness, and drain cards. An agent that lies or errs may spoil only its own
// figures: cards it never offered, tasks of other nodes and impossible values are left out or
// clamped.
#pragma once

#include "core/control/state.h"
#include "core/wire/agent_v1.h"

namespace billow::control {

// A node's text as shown to people: limited in length, printable, on one line.
std::string kept_words(std::string_view text);
// The same for all texts of a report. A checkpoint with an impossible path is left out.
void keep_believed(TaskStatus& status);

// Returns how many readings were left out.
std::size_t keep_believed(const State& state, NodeId node, wire::agent_v1::Heartbeat& beat);

}  // namespace billow::control
