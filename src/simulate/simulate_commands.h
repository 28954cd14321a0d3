// The commands `billow simulate …`, each in its own file, for the table in
// simulate_commands.cpp.
#pragma once

#include "base/result.h"
#include "client/frame/commands.h"

namespace billow::client {

void add_simulate_openb(CommandTable& table);
void add_simulate_jobs(CommandTable& table);
void add_simulate_replay(CommandTable& table);
void add_simulate_endpoints(CommandTable& table);
void add_simulate_prefixes(CommandTable& table);

inline constexpr const char* simulate_group = "money and advice";

// Reports how a simulation ended; returns the exit code.
int simulate_exit(const Status& done);

}  // namespace billow::client
