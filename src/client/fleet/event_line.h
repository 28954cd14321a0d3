// An event of the journal as one readable line; --json has every field.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/clock.h"
#include "base/json.h"
#include "client/frame/client.h"

namespace billow::client {

// Names for the numbers in events. Those of tasks are learned from earlier events.
struct EventNames {
  std::map<std::uint64_t, std::string> nodes, users, projects;
  std::map<std::uint64_t, std::uint64_t> jobs;  // by task
};
// The names that the user may see; unknown numbers are shown as numbers.
EventNames names_for_events(Client& client);

// "job 12 placed on box1, 2 GPUs, at $4.19/h"
std::string event_text(const Json& event, EventNames& names);
// With its number, its time ("5 min ago, 13:57:05") and who caused it.
std::string event_line(const Json& event, EventNames& names, WallTime now);

}  // namespace billow::client
