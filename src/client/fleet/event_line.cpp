#include "client/fleet/event_line.h"

#include <fmt/format.h>

#include "base/formats/utc.h"
#include "base/relative_time.h"
#include "base/text.h"
#include "client/fleet/event_sentences.h"
#include "client/frame/table.h"

namespace billow::client {
namespace {

constexpr std::size_t text_columns_max = 160;

const EventSentences& sentences() {
  static const EventSentences all = [] {
    EventSentences out;
    add_job_sentences(out);
    add_endpoint_sentences(out);
    add_machine_sentences(out);
    add_people_sentences(out);
    add_money_sentences(out);
    return out;
  }();
  return all;
}

// An event of a kind that this program does not know: the words of its kind, then its fields, with
// names in place of numbers where they are known.
std::string plain(const EventReader& r, std::string_view kind) {
  std::string text(kind);
  for (char& c : text)
    if (c == '_')
      c = ' ';
  std::string more;
  for (const auto& [name, value] : r.body.members()) {
    std::string shown;
    if (name.ends_with("_ns") || name == "idempotency_key" || name == "digest")
      continue;
    if (name == "node" && value.is_integer())
      shown = r.node();
    else if (name == "project" && value.is_integer())
      shown = r.project();
    else if (name == "user" && value.is_integer())
      shown = r.user();
    else if (value.is_string())
      shown = std::string(value.str_or(""));
    else if (value.is_object() && !value["name"].str_or("").empty())
      shown = std::string(value["name"].str_or(""));
    else if (value.is_array())
      shown = fmt::format("{} {}", value.items().size(), name);
    else if (value.is_number() || value.is_bool())
      shown = fmt::format("{} {}", name, value.dump());
    if (!shown.empty())
      more += (more.empty() ? ": " : ", ") + shown;
  }
  return text + more;
}

}  // namespace

std::string EventReader::named(const std::map<std::uint64_t, std::string>& known,
                               const Json& id,
                               const char* what) {
  const auto found = known.find(id.uint_or(0));
  return found == known.end() || found->second.empty() ? fmt::format("{} {}", what, id.uint_or(0))
                                                       : found->second;
}

std::string EventReader::quoted(const std::map<std::uint64_t, std::string>& known,
                                const Json& id,
                                const char* what) {
  const auto found = known.find(id.uint_or(0));
  return found == known.end() || found->second.empty()
             ? fmt::format("{} {}", what, id.uint_or(0))
             : fmt::format("{} {} ({})", what, id.uint_or(0), found->second);
}

std::string EventReader::job() const {
  const auto name = event["job_name"].str_or("");
  std::string label(event["job"].str_or(""));
  if (label.empty())
    label = fmt::format("{}", number("job"));
  return name.empty() ? "job " + label : fmt::format("job {} ({})", label, name);
}

std::string EventReader::task() const {
  const std::uint64_t id = number("task");
  const auto known = names.jobs.find(id);
  const auto place = names.places.find(id);
  std::string text = event["job"].is_string()    ? job()
                     : known != names.jobs.end() ? fmt::format("job {}", known->second)
                                                 : fmt::format("task {}", id);
  if (place != names.places.end())
    text += " on " + named(names.nodes, Json(place->second), "node");
  return text;
}

std::string EventReader::because(const char* member) const {
  const auto reason = text(member, "");
  return reason.empty() ? std::string() : fmt::format(": {}", reason);
}

std::string EventReader::for_job() const {
  return number("for_job") ? fmt::format(", for job {}", number("for_job")) : std::string();
}

EventNames names_for_events(Client& client) {
  EventNames out;
  const auto learn = [&](const char* path, const char* list,
                         std::map<std::uint64_t, std::string>& into) {
    const auto answer = client.get(path);
    if (!answer)
      return;  // numbers will do
    for (const Json& one : answer->is_array() ? answer->items() : (*answer)[list].items())
      into[one["id"].uint_or(0)] = std::string(one["name"].str_or(""));
  };
  learn("/v1/nodes", "nodes", out.nodes);
  learn("/v1/users", "users", out.users);
  learn("/v1/projects", "projects", out.projects);
  learn("/v1/pools", "pools", out.pools);
  learn("/v1/tokens", "tokens", out.tokens);
  learn("/v1/reservations", "reservations", out.reservations);
  learn("/v1/schedules", "schedules", out.schedules);
  return out;
}

bool has_sentence(std::string_view kind) {
  return sentences().contains(kind);
}

std::string event_text(const Json& event, EventNames& names, WallTime now) {
  const auto kind = event["kind"].str_or("?");
  const EventReader reader{event, event["event"], names, now};
  return printable(has_sentence(kind) ? sentences().at(kind)(reader) : plain(reader, kind));
}

std::string event_line(const Json& event, EventNames& names, WallTime now) {
  const WallTime at = event["at"].is_string() ? utc_or_zero(event["at"].as_string())
                                              : WallTime{event["at"].int_or(0)};
  const std::string when =
      at ? fmt::format("{} ago, {}", rough_duration(now - at), clock_or_date(at, now)) : "-";
  std::string who(event["actor"].str_or("-"));
  for (const std::string_view kind : {"user:", "node:"})
    if (who.starts_with(kind))
      who.erase(0, kind.size());
  return fmt::format("{:>6}  {:>25}  {:<10}  {}", event["seq"].uint_or(0), when, printable(who),
                     clipped(event_text(event, names, now), text_columns_max));
}

}  // namespace billow::client
