#include "client/top/draw.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/relative_time.h"
#include "client/top/charts.h"
#include "client/top/words.h"

namespace billow::client::top {
namespace {

constexpr int piece_gap = 3;
constexpr int header_chart = 16;

std::string cards_text(const CardCounts& counts) {
  const std::string free = gpus_text(counts.free_milli);
  std::string text =
      fmt::format("{} of {} free", free == "-" ? "0" : free, plural(counts.all, "GPU"));
  const auto add = [&](int n, const char* word) {
    if (n)
      text += fmt::format(", {} {}", n, word);
  };
  add(counts.drained, "drained");
  add(counts.reserved, "reserved");
  add(counts.sick, "sick");
  add(counts.lost, "lost");
  return text;
}

std::string jobs_text(const Fleet& fleet) {
  std::string text =
      fmt::format("{} running, {} waiting", fleet.running, fleet.queued + fleet.held);
  if (fleet.suspended)
    text += fmt::format(", {} suspended", fleet.suspended);
  return text;
}

void draw_header(const State& state, Canvas& canvas) {
  const Fleet& fleet = state.fleet;
  if (state.away_ms) {
    const auto away = (state.now_ms - *state.away_ms) / 1000;
    put_pieces(canvas, 0,
               {{"billow", {Colour::red, true, true}, 9},
                {fmt::format("the head has not answered for {} s; trying again", away),
                 {Colour::red, true, true},
                 8},
                {fmt::format("figures of {}", clock_or_date({*state.away_ms * 1'000'000},
                                                            {state.now_ms * 1'000'000})),
                 {Colour::red, true, true},
                 7}});
    return;
  }
  if (!fleet.complete)
    return put_pieces(canvas, 0,
                      {{"billow", {Colour::none, true}, 9}, {"waiting for the head …", {}, 8}});
  const CardCounts counts = fleet.counts(state.now_ms);
  const auto busy = fleet.busy.newest(), spend = fleet.spend.newest();
  const bool trouble = counts.sick || counts.lost;
  std::vector<Piece> pieces = {
      {"billow", {Colour::none, true}, 4},
      {cards_text(counts), {trouble ? Colour::red : Colour::none, true}, 9},
      {jobs_text(fleet), {Colour::none, true}, 8},
      {per_hour(fleet.spend_nano), {Colour::none, true}, 7}};
  if (fleet.idle_nano)
    pieces.push_back({per_hour(fleet.idle_nano) + " idle", {Colour::yellow, true}, 6});
  pieces.push_back({fmt::format("use {} {}", percent(range_of(busy).now),
                                sparkline(busy, header_chart, 100, state.utf8)),
                    {Colour::green},
                    3});
  const Range spent = range_of(spend);
  pieces.push_back({fmt::format("spend {}", sparkline(spend, header_chart,
                                                      spent.max > 0 ? spent.max : 1, state.utf8)),
                    {Colour::cyan},
                    2});
  if (fleet.store != "ok")
    pieces.push_back({"the head's disk is almost full", {Colour::red, true}, 5});
  pieces.push_back({fleet.you.known ? fmt::format("{} ({})", fleet.you.user, fleet.you.role) : "",
                    {Colour::dim},
                    1});
  put_pieces(canvas, 0, std::move(pieces));
}

std::string tab_text(const State& state, int tab) {
  const Fleet& fleet = state.fleet;
  switch (static_cast<Tab>(tab)) {
    case Tab::gpus:
      return state.folded() ? fmt::format("1 Nodes {}", fleet.nodes.size()) : "1 GPUs";
    case Tab::jobs:
      return fmt::format("2 Jobs {}", fleet.jobs.size());
    case Tab::queue:
      return fmt::format("3 Queue {}", fleet.queued + fleet.held);
    case Tab::endpoints:
      return fleet.endpoints_known ? fmt::format("4 Endpoints {}", fleet.endpoints.size())
                                   : "4 Endpoints";
    case Tab::money:
      return "5 Money";
  }
  return {};
}

void draw_tabs(const State& state, Screen& screen) {
  int col = 0;
  for (int tab = 0; tab < tab_count; ++tab) {
    const bool open = static_cast<int>(state.tab) == tab;
    const std::string text = fmt::format(" {} ", tab_text(state, tab));
    const int width = columns_wide(text);
    if (col + width > state.size.cols)
      break;
    screen.canvas.put(1, col, text, {Colour::none, open, open});
    screen.hits.push_back({Hit::Kind::tab, 1, col, width, tab});
    col += width + 1;
  }
}

}  // namespace

void put_pieces(Canvas& canvas, int row, std::vector<Piece> pieces) {
  std::erase_if(pieces, [](const Piece& p) { return p.text.empty(); });
  const auto total = [&] {
    int sum = -piece_gap;
    for (const Piece& piece : pieces)
      sum += columns_wide(piece.text) + piece_gap;
    return sum;
  };
  while (pieces.size() > 1 && total() > canvas.size().cols)
    pieces.erase(std::ranges::min_element(pieces, {}, &Piece::weight));
  int col = 0;
  for (const Piece& piece : pieces)
    col += canvas.put(row, col, piece.text, piece.style) + piece_gap;
}

Screen draw(const State& state) {
  Screen screen{Canvas(state.size, state.utf8), {}};
  draw_header(state, screen.canvas);
  if (state.help)
    draw_help(state, screen.canvas);
  else if (!state.pages.empty())
    draw_page(state, screen.canvas);
  else {
    draw_tabs(state, screen);
    draw_list(state, screen);
  }
  draw_foot(state, screen.canvas);
  return screen;
}

}  // namespace billow::client::top
