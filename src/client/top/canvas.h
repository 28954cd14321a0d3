// A screen as a grid of cells. Text is written at a place with a width and is clipped there, so
// nothing can leave the screen or its column. Without UTF-8, characters become ASCII ones.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "client/frame/table.h"

namespace billow::client::top {

struct Size {
  int rows = 24, cols = 80;
  bool operator==(const Size&) const = default;
};

struct Style {
  Colour colour = Colour::none;
  bool bold = false, reverse = false;
  bool operator==(const Style&) const = default;
};

class Canvas {
 public:
  Canvas(Size size, bool utf8);
  Size size() const { return size_; }
  bool utf8() const { return utf8_; }

  // Writes at most `width` columns (-1: up to the right edge); returns how many. Longer text ends
  // in "…"; control characters become '?'.
  int put(int row, int col, std::string_view text, Style style = {}, int width = -1);
  // The same with the text at the right end of `width` columns.
  void put_right(int row, int col, std::string_view text, Style style, int width);
  // Changes the style of existing cells.
  void reverse_row(int row);
  void clear_row(int row);
  void restyle(int row, int col, int width, Style style);

  std::string line(int row) const;  // without colours and trailing spaces
  // With escape sequences, as long as the line is; `colours` false: only bold and reverse.
  std::string painted_line(int row, bool colours) const;
  bool same_line(const Canvas& other, int row) const;

 private:
  struct Cell {
    std::string text = " ";  // empty: the right half of a wide character
    Style style;
    bool operator==(const Cell&) const = default;
  };
  Cell& cell(int row, int col) { return cells_[static_cast<std::size_t>(row * size_.cols + col)]; }
  const Cell& cell(int row, int col) const {
    return cells_[static_cast<std::size_t>(row * size_.cols + col)];
  }
  void clear_halves(int row, int col);
  Size size_;
  bool utf8_;
  std::vector<Cell> cells_;
};

inline int columns_wide(std::string_view text) {
  return static_cast<int>(display_width(text));
}

}  // namespace billow::client::top
