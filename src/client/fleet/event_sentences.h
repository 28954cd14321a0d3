// The sentences of events, by kind: event_jobs.cpp has those of jobs and endpoints,
// event_machines.cpp those of nodes, pools and reservations, event_people.cpp those of people,
// settings and money. event_line.cpp puts them together.
//
// A sentence names what changed, and why. Who caused it is in its own column. A member missing from
// an event has the default of its type.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/json.h"
#include "client/fleet/event_line.h"

namespace billow::client {

struct EventReader {
  const Json& event;  // as the API sends it
  const Json& body;   // its own members
  EventNames& names;
  WallTime now;

  std::string_view text(const char* member, std::string_view fallback = "?") const {
    return body[member].str_or(fallback);
  }
  std::uint64_t number(const char* member) const { return body[member].uint_or(0); }

  // "job 12.3 (sweep)": by the words of the head; one of an older version names only numbers.
  std::string job() const;
  // "job 12 on box1": of an event that names only a task.
  std::string task() const;
  std::string node() const { return named(names.nodes, body["node"], "node"); }
  std::string user() const { return named(names.users, body["user"], "user"); }
  std::string pool() const { return named(names.pools, body["pool"], "pool"); }
  std::string token() const { return quoted(names.tokens, body["token"], "token"); }
  std::string project() const { return project_of(body["project"]); }
  std::string project_of(const Json& id) const { return named(names.projects, id, "project"); }
  // ": REASON", or nothing.
  std::string because(const char* member = "reason") const;
  // ", for job 14", or nothing.
  std::string for_job() const;

  // The name of this number, or "node 7".
  static std::string named(const std::map<std::uint64_t, std::string>& known,
                           const Json& id,
                           const char* what);
  // "token 3 (ci)".
  static std::string quoted(const std::map<std::uint64_t, std::string>& known,
                            const Json& id,
                            const char* what);
};

using EventSentence = std::string (*)(const EventReader&);
using EventSentences = std::map<std::string_view, EventSentence>;

void add_job_sentences(EventSentences& into);
void add_endpoint_sentences(EventSentences& into);
void add_machine_sentences(EventSentences& into);
void add_people_sentences(EventSentences& into);
void add_money_sentences(EventSentences& into);

// "1 GPU", "3 GPUs".
inline std::string how_many(std::uint64_t n, std::string_view what) {
  return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}

}  // namespace billow::client
