// Figures as pictures of characters: bars, sparklines of one row, charts of several rows (braille:
// two by four dots per character; in ASCII, one column and two steps per character). NaN is what is
// not known, and stays empty.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace billow::client::top {

// A part of a whole, from 0 to 1.
std::string bar(double part, int cells, bool utf8);
// The newest values, one per character, the newest at the right end.
std::string sparkline(std::span<const double> values, int cells, double max, bool utf8);
// Rows from top to bottom, each `cells` wide. All values are used: several become their mean, and
// fewer than there are dots stand at the right end.
std::vector<std::string> area_chart(
    std::span<const double> values, int cells, int rows, double max, bool utf8);

struct Range {
  double now, mean, max;  // NaN where nothing is known
};
Range range_of(std::span<const double> values);

}  // namespace billow::client::top
