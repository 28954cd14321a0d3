// An event of the journal as one readable line; --json has every field.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/json.h"
#include "client/frame/client.h"

namespace billow::client {

// Names for the numbers in events. The jobs and nodes of tasks are learned from earlier events.
struct EventNames {
  std::map<std::uint64_t, std::string> nodes, users, projects, pools, tokens, reservations,
      schedules;
  std::map<std::uint64_t, std::uint64_t> jobs, places;  // by task; `places` are nodes
};
// The names that the user may see; unknown numbers are shown as numbers.
EventNames names_for_events(Client& client);

// Whether this kind of event has a sentence of its own.
bool has_sentence(std::string_view kind);
// "job 12 (train) placed on box1, 2 GPUs at $4.19/h per GPU"
std::string event_text(const Json& event, EventNames& names, WallTime now = {});
// With its number, its time ("5 min ago, 13:57:05") and who caused it.
std::string event_line(const Json& event, EventNames& names, WallTime now);

}  // namespace billow::client
