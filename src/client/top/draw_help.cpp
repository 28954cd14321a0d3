// The keys: all of them on the help page, those of the present page in the last line. Actions that
// the user may not do are left out.
#include <fmt/format.h>

#include "client/top/draw.h"

namespace billow::client::top {
namespace {

struct HelpLine {
  const char* key;
  const char* text;
  enum class For { all, jobs, drain } who = For::all;
};
constexpr HelpLine help_lines[] = {
    {"1 to 5, Tab", "GPUs or nodes, jobs, queue, endpoints, money"},
    {"arrows, PgUp, g, G", "move the cursor; the mouse works too"},
    {"Enter", "describe the row, with charts"},
    {"l", "log; it follows. / searches; n, N: next, previous match;"},
    {"", "f follows, W wraps, [ and ] choose the node of a gang"},
    {"w", "watch the job: state, progress, charts, cost, log"},
    {"s", "stop the job (asks first)", HelpLine::For::jobs},
    {"z", "suspend the job (asks first)", HelpLine::For::jobs},
    {"r", "resume the job (asks first)", HelpLine::For::jobs},
    {"d, D", "drain or undrain the GPU; with D its whole node", HelpLine::For::drain},
    {"/", "filter by name, user, project, node or state"},
    {"o, O", "next sort column; reverse. Clicking a title also sorts"},
    {"t, i", "jobs by state: active, waiting, ended …; only idle jobs"},
    {"n", "GPUs: one row per GPU or per node"},
    {"c", "charts below the list on or off"},
    {"Esc", "back; in a list: no filter, all rows"},
    {"q, Ctrl-C, Ctrl-Z", "back or quit; quit; pause"},
};

bool offered(const State& state, HelpLine::For who) {
  switch (who) {
    case HelpLine::For::all:
      return true;
    case HelpLine::For::jobs:
      return state.fleet.you.may_change_jobs();
    case HelpLine::For::drain:
      return state.fleet.you.may_drain();
  }
  return true;
}

std::vector<Piece> list_keys(const State& state) {
  const bool work = state.fleet.you.may_change_jobs();
  const bool job_tab = state.tab == Tab::jobs || state.tab == Tab::queue;
  std::vector<Piece> out = {{"Enter describe", {}, 8}};
  if (state.tab != Tab::money && !(state.tab == Tab::gpus && state.folded()))
    out.push_back({"l log", {}, 7});
  if (job_tab)
    out.push_back({"w watch", {}, 3});
  if (job_tab && work) {
    out.push_back({"s stop", {}, 7});
    out.push_back({state.tab == Tab::jobs ? "z suspend" : "r resume", {}, 6});
  }
  if (state.tab == Tab::gpus && state.fleet.you.may_drain())
    out.push_back({"d drain", {}, 6});
  if (state.tab == Tab::gpus)
    out.push_back({state.folded() ? "n GPUs" : "n nodes", {}, 5});
  out.push_back({"/ filter", {}, 5});
  out.push_back({"o sort", {}, 4});
  if (state.tab == Tab::jobs)
    out.push_back({"t show", {}, 3});
  return out;
}

std::vector<Piece> page_keys(const State& state) {
  const Page& page = state.pages.back();
  std::vector<Piece> out = {
      {state.watching && state.pages.size() == 1 ? "q quit" : "Esc back", {}, 9}};
  if (page.kind == Page::Kind::log)
    for (const char* text : {"/ search", "n next", "N previous", "f follow", "W wrap", "g start"})
      out.push_back({text, {}, 5});
  const bool job = page.about.kind == Subject::Kind::job;
  if (page.kind != Page::Kind::log && (job || page.about.kind == Subject::Kind::endpoint))
    out.push_back({"l log", {}, 7});
  if (page.kind == Page::Kind::watch)
    out.push_back({"Enter describe", {}, 6});
  if (job && state.fleet.you.may_change_jobs())
    for (const char* text : {"s stop", "z suspend", "r resume"})
      out.push_back({text, {}, 4});
  if (page.about.kind == Subject::Kind::gpu && state.fleet.you.may_drain())
    out.push_back({"d drain", {}, 4});
  return out;
}

// A question or an answer is never cut: it takes as many of the last rows as it needs.
void put_whole(Canvas& canvas, const std::string& text, Style style) {
  const auto parts = rows_of_line(text, canvas.size().cols);
  const int first = canvas.size().rows - static_cast<int>(parts.size());
  for (int i = 0; i < std::ssize(parts); ++i) {
    canvas.clear_row(first + i);
    canvas.put(first + i, 0, parts[static_cast<std::size_t>(i)], style);
  }
}

}  // namespace

void draw_help(const State& state, Canvas& canvas) {
  canvas.put(1, 0, " keys ", {Colour::none, true, true});
  int row = 3;
  for (const HelpLine& line : help_lines) {
    if (!offered(state, line.who))
      continue;
    canvas.put(row, 1, line.key, {Colour::none, true}, 19);
    canvas.put(row++, 21, line.text);
  }
  const You& you = state.fleet.you;
  if (you.known && !you.may_change_jobs())
    canvas.put(++row, 1,
               you.role == "viewer" ? "Your role is viewer: you can look at jobs, not change them."
                                    : "Your token is read-only: you can look at jobs, not change "
                                      "them.",
               {Colour::yellow});
  canvas.put(state.size.rows - 2, 1, "press any key to continue", dim_style());
}

void draw_foot(const State& state, Canvas& canvas) {
  const int row = state.size.rows - 1;
  if (state.question)
    return put_whole(canvas, state.question->question + "  y yes, any other key no",
                     {Colour::yellow, true, true});
  if (state.typing != State::Typing::none) {
    canvas.put(row, 0,
               fmt::format("{}: {}_", state.typing == State::Typing::filter ? "filter" : "search",
                           state.typed),
               {Colour::none, true});
    return;
  }
  if (!state.message.empty())
    return put_whole(canvas, state.message,
                     {state.message_bad ? Colour::red : Colour::green, true});
  if (state.help)
    return;
  auto keys = state.pages.empty() ? list_keys(state) : page_keys(state);
  keys.push_back({"? help", {}, 9});
  if (state.pages.empty())
    keys.push_back({"q quit", {}, 9});
  for (Piece& key : keys)
    key.style = dim_style();
  put_pieces(canvas, row, std::move(keys));
}

}  // namespace billow::client::top
