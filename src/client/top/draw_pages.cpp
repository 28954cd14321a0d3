// Pages over the list: describe, the log, and watching one job.
#include <algorithm>

#include <fmt/format.h>

#include "base/text.h"
#include "client/frame/explanation.h"
#include "client/top/charts.h"
#include "client/top/draw.h"
#include "client/top/words.h"

namespace billow::client::top {
namespace {

constexpr int page_body = 2;  // below the header and the page's title
constexpr int progress_bar_columns = 30;

int chart_rows(const State& state, const Subject& about) {
  const int rows = state.size.rows;
  if (about.kind == Subject::Kind::account || rows < 20)
    return 0;
  return rows >= 60 ? 16 : rows >= 40 ? 11 : rows >= 30 ? 8 : 6;
}

std::string title_of(const State& state, const Subject& about) {
  switch (about.kind) {
    case Subject::Kind::gpu:
      return fmt::format("GPU {} of {}", about.card, about.name);
    case Subject::Kind::node:
      return "node " + about.name;
    case Subject::Kind::endpoint:
      return "endpoint " + about.name;
    case Subject::Kind::account:
      return about.name;
    case Subject::Kind::job:
      if (const JobEntry* job = state.fleet.job(about.id))
        return fmt::format("job {} {}", job->label, job->name);
      return "job " + about.name;
    case Subject::Kind::none:
      break;
  }
  return {};
}

void draw_page_title(Canvas& canvas, const std::string& title) {
  canvas.put(1, 0, " " + title + " ", {Colour::none, true, true});
}

void draw_describe(const State& state, const Page& page, Canvas& canvas) {
  draw_page_title(canvas, title_of(state, page.about));
  const int charts = chart_rows(state, page.about);
  const auto pictures = charts ? charts_of(state, page.about) : std::vector<Chart>{};
  const int body = page_body + (pictures.empty() ? 0 : charts);
  draw_charts(canvas, page_body, charts, pictures);
  const auto lines = describe_lines(state, page.about);
  const int rows = std::max(0, state.size.rows - 2 - body), count = static_cast<int>(lines.size());
  for (int i = 0; i < rows && page.top + i < count; ++i)
    canvas.put(body + i, 0, lines[static_cast<std::size_t>(page.top + i)]);
  const int below = count - page.top - rows;
  if (below > 0 || page.top > 0)
    canvas.put(
        state.size.rows - 2, 0,
        fmt::format("{}, {} above, {} below", plural(count, "line"), page.top, std::max(0, below)),
        dim_style());
}

// The lines of a log from the first on, in the rows from `row` on; matches stand out.
void draw_log_lines(const State& state, Canvas& canvas, int row, int rows) {
  const LogState& log = state.log;
  const std::string needle = lower(log.search);
  int at = row;
  for (int line = log_top(state, rows); line < log.lines.size() && at < row + rows; ++line) {
    const std::string& text = log.lines.at(line);
    const auto parts =
        log.wrap ? rows_of_line(text, state.size.cols) : std::vector<std::string>{printable(text)};
    for (const std::string& part : parts) {
      if (at >= row + rows)
        break;
      canvas.put(at, 0, part, {line == log.match ? Colour::yellow : Colour::none});
      const std::string folded = lower(part);
      for (auto found = needle.empty() ? std::string::npos : folded.find(needle);
           found != std::string::npos; found = folded.find(needle, found + needle.size()))
        canvas.restyle(at, columns_wide(std::string_view(part).substr(0, found)),
                       columns_wide(needle), {Colour::none, true, true});
      ++at;
    }
  }
  if (log.lines.size() > 0 || rows <= 0)
    return;
  const bool waits = !log.trouble.empty() || !log.begun;
  canvas.put(row, 0,
             !log.trouble.empty() ? log.trouble
             : waits              ? "reading the log …"
                                  : "nothing written yet",
             log.trouble.empty() ? dim_style() : Style{Colour::red});
}

std::string log_status(const State& state, int rows) {
  const LogState& log = state.log;
  const int top = log_top(state, rows), count = log.lines.size();
  std::string text = log.follow ? fmt::format("{}, following", plural(count, "line"))
                                : fmt::format("line {} of {}", std::min(top + 1, count), count);
  if (log.follow && top > 0)
    text += fmt::format(", {} more above", top);
  if (log.lines.dropped() || log.from_tail)
    text += fmt::format("; `billow logs {}` prints all", log.about.name);
  if (log.skipped_bytes)
    text += fmt::format("; {} were deleted (size limit of logs)", format_bytes(log.skipped_bytes));
  if (!log.search.empty())
    text += fmt::format("; search \"{}\"", log.search);
  if (log.ranks > 1)
    text += fmt::format("; node {} of {}", log.rank + 1, log.ranks);
  if (!log.trouble.empty() && count > 0)
    text += "; " + log.trouble;
  return text;
}

void draw_log(const State& state, const Page& page, Canvas& canvas) {
  draw_page_title(canvas, "log of " + title_of(state, page.about));
  const int rows = log_rows(state);
  draw_log_lines(state, canvas, page_body, rows);
  canvas.put(state.size.rows - 2, 0, log_status(state, rows), dim_style());
}

// The state of a job in one line: the stream's row, or the document once it has ended.
std::vector<Piece> watch_line(const State& state, const Subject& about) {
  const Json& document = state.answer("detail", detail_path(about));
  const JobEntry* job = state.fleet.job(about.id);
  if (!job && !document.is_object()) {
    const auto asked = state.asked.find("detail");
    const bool bad = asked != state.asked.end() && !asked->second.trouble.empty();
    return {{bad ? asked->second.trouble : "waiting for the head …",
             bad ? Style{Colour::red} : dim_style(), 1}};
  }
  JobEntry row;
  if (job)
    row = *job;
  else {
    row.state = std::string(document["state"].str_or("?"));
    row.user = std::string(document["user"].str_or(""));
    row.project = std::string(document["project"].str_or(""));
    row.ran = document["ran_s"].int_or(0) * 1000;
    row.ended = 1;
    row.cost_nano = document["cost_nano_usd"].int_or(0);
    row.reason = std::string(document.at("exit", "text").str_or(document["reason"].str_or("")));
  }
  const bool idle = job && state.fleet.is_idle(row);
  std::vector<Piece> out = {
      {idle ? "running, but idle" : row.state,
       {idle ? Colour::yellow : colour_of_state(row.state), true},
       9},
      {fmt::format("{} {}",
                   row.waits()                ? "waits"
                   : row.state == "suspended" ? "for"
                                              : "ran",
                   lasting(row.spent_ms(state.now_ms))),
       {},
       8},
      {row.reason, {}, 6},
      {usd(row.cost(state.now_ms)) +
           (row.rate_nano ? fmt::format(" so far, {}", per_hour(row.rate_nano)) : ""),
       {},
       7},
      {row.gpu_milli
           ? fmt::format("{} GPU{}", gpus_text(row.gpu_milli), row.gpu_milli == 1000 ? "" : "s")
           : "",
       {},
       5},
      {state.fleet.places_of(row), {}, 4},
      {fmt::format("{}, {}", row.user, row.project), dim_style(), 3}};
  return out;
}

// How far it is: elements of an array, what its log says, or its time limit.
std::string progress_text(const State& state, const Subject& about) {
  const Json& document = state.answer("detail", detail_path(about));
  const auto line = [&](double part, const std::string& text) {
    return fmt::format("progress {} {:.0f}%  {}", bar(part, progress_bar_columns, state.utf8),
                       part * 100, text);
  };
  if (const Json& elements = document["elements"]; elements.is_object()) {
    const double count = std::max(1.0, elements["count"].double_or(1));
    const double done = count - elements["left"].double_or(count);
    return line(done / count, fmt::format("{:.0f} of {:.0f} elements done, {} running", done, count,
                                          elements["running"].int_or(0)));
  }
  if (const auto found = progress_in(state.log.lines))
    return line(found->part, fmt::format("{} in its log", found->text));
  const auto limit_s = document["time_limit_s"].int_or(0);
  if (const JobEntry* job = state.fleet.job(about.id); job && limit_s > 0) {
    const double ran_s = static_cast<double>(job->spent_ms(state.now_ms)) / 1000;
    return line(std::min(1.0, ran_s / static_cast<double>(limit_s)),
                fmt::format("of its time limit of {}", lasting(limit_s * 1000)));
  }
  return {};
}

// Why the job waits, while it does: at most so many rows, since its log needs the others.
constexpr int why_rows_max = 6;

int draw_why(const State& state, const Page& page, Canvas& canvas, int row) {
  const JobEntry* job = state.fleet.job(page.about.id);
  if (!job || !(job->waits() || job->state == "suspended"))
    return row;
  const Json& why = state.answer("why", explain_path(page.about));
  if (!why.is_object())
    return row;
  const WallTime now{state.now_ms * 1'000'000};
  const int end = row + std::min(why_rows_max, std::max(1, state.size.rows / 4));
  std::vector<std::string> lines = split(explanation_text(why, now), '\n');
  lines.insert(lines.begin(), explanation_sentence(page.about.name, why, now));
  for (const std::string& line : lines)
    for (const std::string& part : rows_of_line(line, state.size.cols))
      if (row < end && !part.empty())
        canvas.put(row++, 0, part, {Colour::yellow});
  return row;
}

void draw_watch(const State& state, const Page& page, Canvas& canvas) {
  draw_page_title(canvas, title_of(state, page.about));
  put_pieces(canvas, 2, watch_line(state, page.about));
  int row = 3;
  if (const std::string progress = progress_text(state, page.about); !progress.empty())
    canvas.put(row++, 0, progress);
  row = draw_why(state, page, canvas, row);
  for (const Json& finding : state.answer("history", history_path(page.about))["findings"].items())
    if (state.size.rows >= 30 && row < 6)
      canvas.put(row++, 0, finding["text"].str_or(""), {Colour::yellow});
  const int charts = chart_rows(state, page.about);
  const auto pictures = charts_of(state, page.about);
  if (!pictures.empty() && charts > 0) {
    draw_charts(canvas, row, charts, pictures);
    row += charts;
  }
  const int rows = std::max(0, state.size.rows - 2 - row);
  canvas.put(row++, 0, fmt::format("log: {}", log_status(state, rows)), dim_style());
  draw_log_lines(state, canvas, row, rows);
}

}  // namespace

int log_rows(const State& state) {
  return std::max(0, state.size.rows - 2 - page_body);
}

int describe_rows(const State& state) {
  const Subject about = cursor(state);
  const int charts = chart_rows(state, about);
  return std::max(0, state.size.rows - 2 - page_body -
                         (charts && !charts_of(state, about).empty() ? charts : 0));
}

void draw_page(const State& state, Canvas& canvas) {
  const Page& page = state.pages.back();
  switch (page.kind) {
    case Page::Kind::describe:
      return draw_describe(state, page, canvas);
    case Page::Kind::log:
      return draw_log(state, page, canvas);
    case Page::Kind::watch:
      return draw_watch(state, page, canvas);
  }
}

}  // namespace billow::client::top
