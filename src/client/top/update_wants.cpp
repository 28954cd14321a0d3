// What the screen needs beside the live stream, asked for while it is shown.
#include <fmt/format.h>

#include "client/frame/client.h"
#include "client/top/update.h"

namespace billow::client::top {
namespace {

constexpr std::int64_t second_ms = 1000, minute_ms = 60'000;
constexpr const char* queue_path = "/v1/jobs?state=queued,held&reasons=1&limit=200";

struct Want {
  std::string slot, path;
  std::int64_t every_ms;
};

// What the row under the cursor or the open page shows.
void want_detail(const State& state, std::vector<Want>& out) {
  const Subject at = cursor(state);
  const Page* page = state.page();
  if (page && page->kind == Page::Kind::log)
    return;
  if (!page && geometry(state).pane_rows == 0)
    return;
  if (const std::string path = history_path(at); !path.empty())
    out.push_back(
        {"history", path, at.kind == Subject::Kind::job ? 4 * second_ms : 10 * second_ms});
  const JobEntry* job = at.kind == Subject::Kind::job ? state.fleet.job(at.id) : nullptr;
  if (job && (job->waits() || job->state == "suspended"))
    out.push_back({"why", explain_path(at), 5 * second_ms});
  if (!page)
    return;
  if (const std::string path = detail_path(at); !path.empty())
    out.push_back({"detail", path, 3 * second_ms});
  if (at.kind == Subject::Kind::account)
    out.push_back({"spent", spent_path(at), minute_ms});
}

std::vector<Want> wants(const State& state) {
  const bool list = state.pages.empty();
  std::vector<Want> out = {
      {"status", "/v1/status", minute_ms},
      {"reservations", "/v1/reservations", 30 * second_ms},
      {"fleet", "/v1/history/fleet?span_s=360&points=36", 100 * minute_ms},
  };
  if (!state.watching)
    out.push_back({"endpoints", "/v1/endpoints",
                   list && state.tab == Tab::endpoints ? 2 * second_ms : 30 * second_ms});
  if (list && (state.tab == Tab::queue || state.tab == Tab::jobs))
    out.push_back({"queue", queue_path, 5 * second_ms});
  if (state.tab == Tab::money && !state.watching) {
    out.push_back({"budgets", "/v1/budgets", 10 * second_ms});
    out.push_back({"cost", "/v1/cost?by=project", 30 * second_ms});
    out.push_back({"spending", spending_path, 10 * second_ms});
  }
  want_detail(state, out);
  return out;
}

}  // namespace

std::string detail_path(const Subject& about) {
  return about.kind == Subject::Kind::job    ? path_of_job(about.name)
         : about.kind == Subject::Kind::node ? "/v1/nodes/" + net::percent_encode(about.name)
                                             : "";
}

std::string history_path(const Subject& about) {
  if (about.kind == Subject::Kind::job)
    return path_of_job(about.name, "history");
  if (about.kind == Subject::Kind::gpu && about.card >= 0)
    return fmt::format("/v1/nodes/{}/gpus/{}/history?span_s=1800&points=360",
                       net::percent_encode(about.name), about.card);
  return {};
}

std::string explain_path(const Subject& about) {
  return path_of_job(about.name, "explain");
}

// "project vision" → its jobs of this month; of other budgets nothing more is known.
std::string spent_path(const Subject& account) {
  const auto space = account.name.find(' ');
  const auto end = account.name.find(' ', space + 1);
  const std::string of = account.name.substr(space + 1, end - space - 1);
  if (account.name.starts_with("project "))
    return with_query("/v1/cost", {{"by", "job"}, {"project", of}});
  if (account.name.starts_with("user "))
    return with_query("/v1/cost", {{"by", "job"}, {"user", of}});
  return {};
}

void ask_for_what_is_shown(State& state, Effects& out) {
  if (state.away_ms)
    return;
  for (const Want& want : wants(state)) {
    if (want.path.empty())
      continue;
    Asked& asked = state.asked[want.slot];
    const bool same = asked.path == want.path;
    if (same && (asked.in_flight || state.now_ms - asked.asked_ms < want.every_ms))
      continue;
    asked.path = want.path;
    asked.asked_ms = state.now_ms;
    asked.in_flight = true;
    out.push_back(Fetch{want.slot, want.path});
  }
}

void on_fetched(State& state, const Fetched& fetched) {
  Asked& asked = state.asked[fetched.slot];
  if (asked.path != fetched.path)
    return;  // the screen shows something else by now
  asked.in_flight = false;
  asked.trouble = fetched.answer ? "" : fetched.answer.error().message;
  if (!fetched.answer)
    return;
  asked.answered = fetched.path;
  asked.answer = *fetched.answer;
  Fleet& fleet = state.fleet;
  if (fetched.slot == "status")
    fleet.take_status(asked.answer);
  else if (fetched.slot == "reservations")
    fleet.take_reservations(asked.answer);
  else if (fetched.slot == "endpoints")
    fleet.take_endpoints(asked.answer, state.now_ms);
  else if (fetched.slot == "queue")
    fleet.take_queue(asked.answer);
  else if (fetched.slot == "fleet")
    fleet.take_fleet_history(asked.answer);
  else if (fetched.slot == "budgets")
    fleet.budgets = asked.answer["budgets"].items();
  else if (fetched.slot == "cost")
    fleet.costs = asked.answer["lines"].items();
  fleet.money_known = fleet.money_known || fetched.slot == "cost";
}

}  // namespace billow::client::top
