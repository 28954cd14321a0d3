// What of a node's readings is believed. They come with every heartbeat, feed history, metrics and
// the idle verdicts' display, and drain cards; an agent that lies or errs may spoil its own
// figures, and nobody else's: cards it never offered, tasks of other nodes and values that no card
// has are left out or brought to what can be.
#pragma once

#include "core/control/state.h"
#include "core/wire/agent_v1.h"

namespace billow::control {

// A text of a node as people are shown it: as long as such a text may be, letters on one line.
std::string kept_words(std::string_view text);
// The same for all that a report says in words. A checkpoint whose path is none that can be is left
// out.
void keep_believed(TaskStatus& status);

// Returns how many readings were left out.
std::size_t keep_believed(const State& state, NodeId node, wire::agent_v1::Heartbeat& beat);

}  // namespace billow::control
