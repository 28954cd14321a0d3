// A tab: its list, what the list hides, and a pane about the row under the cursor.
#include <algorithm>

#include <fmt/format.h>

#include "base/text.h"
#include "client/frame/explanation.h"
#include "client/top/draw.h"
#include "client/top/words.h"

namespace billow::client::top {
namespace {

constexpr int pane_rows_most = 16, pane_rows_least = 6;

// How many rows the pane has if the list needs its own.
int pane_share(const State& state) {
  const int rows = state.size.rows;
  if (rows >= 60)
    return 16;
  if (rows >= 40)
    return 12;
  if (rows >= 30)
    return 9;
  return rows >= 20 && (state.tab == Tab::queue || state.tab == Tab::money) ? 7 : 0;
}

void draw_titles(const List& list,
                 const ListState& at,
                 const std::vector<PlacedColumn>& placed,
                 int row,
                 Screen& screen) {
  for (const PlacedColumn& p : placed) {
    const Column& column = list.columns[static_cast<std::size_t>(p.column)];
    const bool sorted = column.sort == at.sort && *column.title;
    const Style style{Colour::dim, sorted};
    if (column.right)
      screen.canvas.put_right(row, p.col, column.title, style, p.width);
    else
      screen.canvas.put(row, p.col, column.title, style, p.width);
    if (column.sort >= 0)
      screen.hits.push_back({Hit::Kind::title, row, p.col, p.width, column.sort});
  }
}

// "rows 1 to 17 of 20, 3 more below": whatever the list does not show is counted here.
std::string hidden_text(const List& list, const ListState& at, int first, int shown) {
  const int count = static_cast<int>(list.rows.size()), below = count - first - shown;
  std::string text = plural(count, list.of);
  if (first > 0)
    text += fmt::format(", {} more above", first);
  if (below > 0)
    text += fmt::format(", {} more below", below);
  if (list.show)
    text += fmt::format(", {}", list.show);
  if (!at.filter.empty())
    text += fmt::format(", with \"{}\"", at.filter);
  if (list.all > list.rows.size())
    text += fmt::format(", {} hidden", list.all - list.rows.size());
  if (!list.sorts.empty())
    text += fmt::format(", by {}{}",
                        list.sorts[static_cast<std::size_t>(
                            std::clamp(at.sort, 0, static_cast<int>(list.sorts.size()) - 1))],
                        at.reverse ? " reversed" : "");
  return text;
}

void draw_rows(const State& state, const List& list, const Geometry& where, Screen& screen) {
  const ListState& at = state.list();
  const int first = at.top;
  const int shown = std::clamp(static_cast<int>(list.rows.size()) - first, 0, where.body_rows);
  std::vector<int> wanted(list.columns.size(), 0);
  for (std::size_t c = 0; c < list.columns.size(); ++c)
    if (list.columns[c].fills_to == 0)
      for (int i = 0; i < shown; ++i)
        wanted[c] = std::max(
            wanted[c],
            columns_wide(printable(list.cell(static_cast<std::size_t>(first + i), c, 0).text)));
  const auto placed = place_columns(list.columns, wanted, state.size.cols);
  draw_titles(list, at, placed, where.titles, screen);
  for (int i = 0; i < shown; ++i) {
    const int row = where.body + i;
    for (const PlacedColumn& p : placed) {
      const CellText cell = list.cell(static_cast<std::size_t>(first + i),
                                      static_cast<std::size_t>(p.column), p.width);
      if (list.columns[static_cast<std::size_t>(p.column)].right)
        screen.canvas.put_right(row, p.col, cell.text, cell.style, p.width);
      else
        screen.canvas.put(row, p.col, cell.text, cell.style, p.width);
    }
    screen.hits.push_back({Hit::Kind::row, row, 0, state.size.cols, first + i});
    if (first + i == at.index)
      screen.canvas.reverse_row(row);
  }
  if (list.rows.empty() && where.body_rows > 0)
    screen.canvas.put(where.body, 0, list.nothing, dim_style());
  screen.canvas.put(where.status, 0, hidden_text(list, at, first, shown), dim_style());
}

// Why a job waits, as the head explains it.
void draw_why(const State& state, const Subject& job, const Geometry& where, Canvas& canvas) {
  const Json& why = state.answer("why", explain_path(job));
  const WallTime now{state.now_ms * 1'000'000};
  int row = where.pane + 1;
  if (!why.is_object()) {
    canvas.put(row, 0, "asking the head why it waits …", dim_style());
    return;
  }
  canvas.put(row++, 0, explanation_sentence(job.name, why, now), {Colour::none, true});
  for (const std::string& line : split(trim(explanation_text(why, now)), '\n'))
    for (const std::string& part : rows_of_line("  " + std::string(trim(line)), state.size.cols))
      if (row < where.pane + where.pane_rows)
        canvas.put(row++, 0, part);
}

void draw_pane(const State& state, const Geometry& where, Canvas& canvas) {
  if (where.pane_rows < 2)
    return;
  const Subject at = cursor(state);
  const JobEntry* job = at.kind == Subject::Kind::job ? state.fleet.job(at.id) : nullptr;
  std::string title = state.tab == Tab::money ? "the whole fleet" : at.name;
  if (at.kind == Subject::Kind::gpu)
    title = fmt::format("GPU {} of {}", at.card, at.name);
  else if (job)
    title = fmt::format("job {} {}", job->label, job->name);
  std::string rule;
  for (int i = columns_wide(title) + 4; i < state.size.cols; ++i)
    rule += "─";
  canvas.put(where.pane, 0, fmt::format("── {} {}", title, rule), dim_style());
  if (job && (job->waits() || job->state == "suspended"))
    return draw_why(state, at, where, canvas);
  draw_charts(canvas, where.pane + 1, where.pane_rows - 1, charts_of(state, at));
}

}  // namespace

Geometry geometry(const State& state) {
  Geometry out;
  const int rows = state.size.rows;
  out.foot = rows - 1;
  out.status = rows - 2;
  const int body = std::max(0, rows - 2 - out.body);
  if (state.pane && rows >= 14) {
    const int needed = static_cast<int>(list_of(state).rows.size());
    const int spare = std::min(pane_rows_most, body - std::max(1, needed));
    out.pane_rows = std::max(pane_share(state), spare >= pane_rows_least ? spare : 0);
    if (needed == 0 && state.tab != Tab::money)
      out.pane_rows = 0;
  }
  out.body_rows = std::max(0, body - out.pane_rows);
  out.pane = out.body + out.body_rows;
  return out;
}

void draw_list(const State& state, Screen& screen) {
  const Geometry where = geometry(state);
  draw_rows(state, list_of(state), where, screen);
  draw_pane(state, where, screen.canvas);
}

}  // namespace billow::client::top
