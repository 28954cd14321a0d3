// Which columns of a list fit into a width, and how wide each becomes. Figures are never cut: a
// column whose figures do not fit is left out, the least important first.
#pragma once

#include <string>
#include <vector>

#include "client/top/canvas.h"

namespace billow::client::top {

struct Column {
  const char* title = "";
  bool right = false;
  int cut_to = 0;    // text may be cut down to this width; 0: never
  int goes = 0;      // left out where the line is too narrow, the largest first; 0: never
  int fills_to = 0;  // a picture: takes what is left of the line, from `cut_to` up to this
  int sort = -1;     // which order a click on the title chooses
};

struct PlacedColumn {
  int column = 0, col = 0, width = 0;
};
// `wanted` has the width of the contents of each column.
std::vector<PlacedColumn> place_columns(const std::vector<Column>& columns,
                                        const std::vector<int>& wanted,
                                        int width);

}  // namespace billow::client::top
