// Pages and their logs: which log is read, how far, and which lines are on the screen.
#include <algorithm>

#include <fmt/format.h>

#include "client/top/update.h"

namespace billow::client::top {
namespace {

constexpr std::int64_t read_every_ms = 500;
constexpr std::int64_t read_again_ms = 3000;  // after an error, or at the end of an ended job
constexpr std::size_t pages_max = 8;

void begin_log(State& state, const Subject& about, int rank) {
  const std::uint64_t generation = state.log.generation + 1;
  const bool wrap = state.log.wrap;
  state.log = {};
  state.log.generation = generation;
  state.log.wrap = wrap;
  state.log.about = about;
  state.log.rank = rank;
}

// A gang has a log for each of its nodes.
int ranks_of(const State& state) {
  const JobEntry* job = state.fleet.job(state.log.about.id);
  const auto nodes = state.answer("detail", detail_path(state.log.about))["nodes"].int_or(1);
  return std::max({1, job ? static_cast<int>(job->where.size()) : 1,
                   static_cast<int>(std::clamp<std::int64_t>(nodes, 1, 100'000))});
}

// Scrolling begins at what is on the screen.
void leave_follow(State& state) {
  if (!state.log.follow)
    return;
  state.log.top = log_top(state, log_rows(state));
  state.log.follow = false;
}

void show_line(State& state, int line) {
  state.log.follow = false;
  state.log.top = std::max(0, line - log_rows(state) / 2);
}

}  // namespace

void open_page(State& state, Page::Kind kind, const Subject& about) {
  if (about.kind == Subject::Kind::none)
    return;
  if (state.page() && state.page()->kind == kind && state.page()->about == about)
    return;
  if (state.pages.size() >= pages_max)
    state.pages.pop_back();
  state.pages.push_back({kind, about});
  if (kind != Page::Kind::describe && state.log.about != about)
    begin_log(state, about, 0);
}

int log_top(const State& state, int rows) {
  const LogState& log = state.log;
  const bool watched = state.page() && state.page()->kind == Page::Kind::watch;
  if (!log.follow && !watched)
    return std::clamp(log.top, 0, std::max(0, log.lines.size() - 1));
  int line = log.lines.size(), left = rows;
  while (line > 0) {
    const int taken =
        log.wrap ? static_cast<int>(rows_of_line(log.lines.at(line - 1), state.size.cols).size())
                 : 1;
    if (taken > left)
      break;
    left -= taken;
    --line;
  }
  return std::min(line, std::max(0, log.lines.size() - 1));
}

void scroll_log(State& state, int lines) {
  leave_follow(state);
  LogState& log = state.log;
  log.top = std::clamp(log.top + lines, 0, std::max(0, log.lines.size() - 1));
  if (lines > 0) {  // at the end it follows again
    log.follow = true;
    log.follow = log.top >= log_top(state, log_rows(state));
  }
}

void search_log(State& state, bool down, bool from_here) {
  LogState& log = state.log;
  if (log.search.empty())
    return say_message(state, "press / and type what to look for", true);
  const int begin =
      from_here || log.match < 0 ? log_top(state, log_rows(state)) : log.match + (down ? 1 : -1);
  const auto found = log.lines.find(log.search, begin, down);
  if (!found)
    return say_message(state,
                       fmt::format("no line with \"{}\" among the last {}; `billow logs {} "
                                   "--search` looks through the whole log",
                                   log.search, log.lines.size(), log.about.name),
                       true);
  log.match = *found;
  show_line(state, *found);
}

void on_log_key(State& state, const Key& key) {
  LogState& log = state.log;
  const int page = std::max(1, log_rows(state) - 1);
  const std::string letter = key.name == KeyName::letter ? key.text : "";
  if (key.name == KeyName::up || letter == "k")
    scroll_log(state, -1);
  else if (key.name == KeyName::down || letter == "j")
    scroll_log(state, 1);
  else if (key.name == KeyName::page_up || (key.name == KeyName::control && key.text == "b"))
    scroll_log(state, -page);
  else if (key.name == KeyName::page_down || letter == " " ||
           (key.name == KeyName::control && key.text == "f"))
    scroll_log(state, page);
  else if (key.name == KeyName::home || letter == "g")
    scroll_log(state, -log.lines.size());
  else if (key.name == KeyName::end || letter == "G" || letter == "f")
    log.follow = letter == "f" ? !log.follow : true;
  else if (letter == "/") {
    state.typing = State::Typing::search;
    state.typed.clear();
    log.match = -1;
  } else if (letter == "n" || letter == "N")
    search_log(state, letter == "n", false);
  else if (letter == "W")
    log.wrap = !log.wrap;
  else if ((letter == "]" || letter == "[") && log.ranks > 1)
    begin_log(state, Subject(log.about),
              (log.rank + (letter == "]" ? 1 : log.ranks - 1)) % log.ranks);
  else if (letter == "w")
    open_page(state, Page::Kind::watch, Subject(log.about));
  else if (key.name == KeyName::enter)
    open_page(state, Page::Kind::describe, Subject(log.about));
  else if (letter == "s")
    ask_to_stop(state);
  else if (letter == "z")
    ask_to_suspend(state);
  else if (letter == "r")
    ask_to_resume(state);
}

void on_log_read(State& state, const LogRead& read) {
  LogState& log = state.log;
  if (read.generation != log.generation)
    return;
  log.in_flight = false;
  const std::uint64_t dropped = log.lines.dropped();
  log.lines.take(read.bytes);
  // Lines that were removed at the beginning must not move what is being read.
  const auto moved =
      static_cast<int>(std::min<std::uint64_t>(log.lines.dropped() - dropped, log_lines_max));
  log.top = std::max(0, log.top - moved);
  if (log.match >= 0)
    log.match = std::max(0, log.match - moved);
  log.skipped_bytes += read.skipped_bytes;
  if (!read.resume_at.empty())
    log.offset = read.resume_at;
  log.trouble = read.status ? "" : read.status.error().message;
  if (read.status)
    log.begun = true;
}

void want_log(State& state, Effects& out) {
  LogState& log = state.log;
  const Page* page = state.page();
  if (!page || page->kind == Page::Kind::describe || log.in_flight || state.away_ms)
    return;
  if (log.about != page->about)
    begin_log(state, Subject(page->about), 0);
  log.ranks = ranks_of(state);
  const JobEntry* job = state.fleet.job(log.about.id);
  const bool ended = log.begun && (!job || job->has_ended());
  const std::int64_t pause = !log.trouble.empty() || ended ? read_again_ms : read_every_ms;
  if (log.asked_ms && state.now_ms - log.asked_ms < pause)
    return;
  if (job && job->array) {
    log.trouble = fmt::format(
        "job {0} is an array; choose an element, for example {0}.0, under "
        "Jobs, or run `billow logs {0}`",
        job->label);
    return;
  }
  log.in_flight = true;
  log.asked_ms = state.now_ms;
  out.push_back(ReadLog{log.generation, log.about.name, fmt::format("{}", log.rank), log.offset});
}

}  // namespace billow::client::top
