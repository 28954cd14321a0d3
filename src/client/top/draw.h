// The parts of draw().
#pragma once

#include <string>
#include <vector>

#include "client/top/list.h"
#include "client/top/state.h"

namespace billow::client::top {

// A piece of a line that is shown whole or not at all.
struct Piece {
  std::string text;
  Style style = {};
  int weight = 0;  // the lightest goes first where the line is too narrow
};
void put_pieces(Canvas& canvas, int row, std::vector<Piece> pieces);

struct Chart {
  std::string name;
  std::vector<double> values;
  double max = 100;
  enum class Unit {
    percent,
    mebibytes,
    watts,
    celsius,
    usd_per_hour,
    cores,
    per_second
  } unit = Unit::percent;
  std::string span;  // "30 min"
  Colour colour = Colour::green;
};
// Side by side in `rows` rows from `row` on: a line of figures, and the picture below.
void draw_charts(Canvas& canvas, int row, int rows, const std::vector<Chart>& charts);
std::vector<Chart> charts_of(const State& state, const Subject& about);

void draw_list(const State& state, Screen& screen);  // draw_list.cpp
void draw_page(const State& state, Canvas& canvas);  // draw_pages.cpp
void draw_help(const State& state, Canvas& canvas);  // draw_help.cpp
void draw_foot(const State& state, Canvas& canvas);

inline Style dim_style() {
  return {Colour::dim};
}

}  // namespace billow::client::top
