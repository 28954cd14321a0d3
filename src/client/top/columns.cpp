#include "client/top/columns.h"

#include <algorithm>

namespace billow::client::top {
namespace {

constexpr int gap = 1;

struct Chosen {
  int column, least, most, width;
};

int total_width(const std::vector<Chosen>& chosen) {
  int sum = gap * std::max(0, static_cast<int>(chosen.size()) - 1);
  for (const Chosen& c : chosen)
    sum += c.width;
  return sum;
}

// Gives what is left of the line to columns that can use it: text first, then pictures.
void widen(std::vector<Chosen>& chosen, const std::vector<Column>& columns, int width) {
  for (const bool pictures : {false, true})
    for (bool grew = true; grew && total_width(chosen) < width;) {
      grew = false;
      for (Chosen& c : chosen) {
        const bool picture = columns[static_cast<std::size_t>(c.column)].fills_to > 0;
        if (picture != pictures || c.width >= c.most || total_width(chosen) >= width)
          continue;
        ++c.width;
        grew = true;
      }
    }
}

}  // namespace

std::vector<PlacedColumn> place_columns(const std::vector<Column>& columns,
                                        const std::vector<int>& wanted,
                                        int width) {
  std::vector<Chosen> chosen;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const Column& c = columns[i];
    const int title = columns_wide(c.title), content = std::max(title, wanted[i]);
    const int most = c.fills_to > 0 ? std::max(c.fills_to, title) : content;
    const int least = c.cut_to > 0 ? std::min(most, std::max(title, c.cut_to)) : content;
    chosen.push_back({static_cast<int>(i), least, most, least});
  }
  while (total_width(chosen) > width && chosen.size() > 1) {
    std::size_t worst = chosen.size();
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      const int goes = columns[static_cast<std::size_t>(chosen[i].column)].goes;
      if (goes > 0 && (worst == chosen.size() ||
                       goes > columns[static_cast<std::size_t>(chosen[worst].column)].goes))
        worst = i;
    }
    chosen.erase(chosen.begin() +
                 static_cast<std::ptrdiff_t>(worst == chosen.size() ? worst - 1 : worst));
  }
  widen(chosen, columns, width);
  std::vector<PlacedColumn> out;
  int col = 0;
  for (const Chosen& c : chosen) {
    out.push_back({c.column, col, std::min(c.width, std::max(0, width - col))});
    col += c.width + gap;
  }
  return out;
}

}  // namespace billow::client::top
