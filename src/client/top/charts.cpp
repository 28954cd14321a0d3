#include "client/top/charts.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace billow::client::top {
namespace {

constexpr double unknown_value = std::numeric_limits<double>::quiet_NaN();

// At most `points` values; several become their mean.
std::vector<double> squeezed(std::span<const double> values, int points) {
  const auto wanted = static_cast<std::size_t>(std::max(1, points));
  if (values.size() <= wanted)
    return {values.begin(), values.end()};
  std::vector<double> out(wanted, unknown_value);
  for (std::size_t i = 0; i < wanted; ++i) {
    double sum = 0;
    int known = 0;
    for (std::size_t k = i * values.size() / wanted; k < (i + 1) * values.size() / wanted; ++k)
      if (!std::isnan(values[k])) {
        sum += values[k];
        ++known;
      }
    if (known)
      out[i] = sum / known;
  }
  return out;
}

// How many of `steps` a value fills: at least one if it is more than nothing.
int height_of(double value, double max, int steps) {
  if (std::isnan(value) || value <= 0 || !(max > 0))
    return 0;
  return std::clamp(static_cast<int>(std::lround(value / max * steps)), 1, steps);
}

std::string braille_letter(unsigned dots) {
  const unsigned code = 0x2800 + dots;
  return {static_cast<char>(0xE0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 63)),
          static_cast<char>(0x80 | (code & 63))};
}

}  // namespace

std::string bar(double part, int cells, bool utf8) {
  static constexpr const char* eighths[] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"};
  const double share = std::isnan(part) ? 0 : std::clamp(part, 0.0, 1.0);
  std::string out;
  if (!utf8) {
    const int full = static_cast<int>(std::lround(share * cells));
    for (int i = 0; i < cells; ++i)
      out += i < full ? '#' : '.';
    return out;
  }
  const int filled = static_cast<int>(std::lround(share * cells * 8));
  for (int i = 0; i < cells; ++i)
    out += eighths[std::clamp(filled - i * 8, 0, 8)];
  return out;
}

std::string sparkline(std::span<const double> values, int cells, double max, bool utf8) {
  static constexpr const char* blocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  static constexpr char ascii[] = "_.,-=+*#";
  std::string out;
  const auto wide = static_cast<std::size_t>(std::max(0, cells));
  if (values.size() < wide)
    out.append(wide - values.size(), ' ');
  else
    values = values.last(wide);
  for (const double value : values) {
    if (std::isnan(value)) {
      out += ' ';
      continue;
    }
    const int level = std::max(0, height_of(value, max, 8) - 1);
    if (utf8)
      out += blocks[level];
    else
      out += ascii[level];
  }
  return out;
}

std::vector<std::string> area_chart(
    std::span<const double> values, int cells, int rows, double max, bool utf8) {
  std::vector<std::string> out(static_cast<std::size_t>(std::max(0, rows)));
  if (cells <= 0 || rows <= 0)
    return out;
  const int per_cell = utf8 ? 2 : 1, steps_per_row = utf8 ? 4 : 2;
  std::vector<double> points = squeezed(values, cells * per_cell);
  points.insert(points.begin(), static_cast<std::size_t>(cells * per_cell) - points.size(),
                unknown_value);
  // Dots of a column, from its bottom: bits of the two halves of a braille letter.
  static constexpr unsigned left[] = {0x00, 0x40, 0x44, 0x46, 0x47};
  static constexpr unsigned right[] = {0x00, 0x80, 0xA0, 0xB0, 0xB8};
  for (int row = 0; row < rows; ++row) {
    const int below = (rows - 1 - row) * steps_per_row;
    const auto steps = [&](int point) {
      return std::clamp(
          height_of(points[static_cast<std::size_t>(point)], max, rows * steps_per_row) - below, 0,
          steps_per_row);
    };
    for (int cell = 0; cell < cells; ++cell) {
      if (!utf8) {
        out[static_cast<std::size_t>(row)] += " .#"[steps(cell)];
        continue;
      }
      const unsigned dots = left[steps(cell * 2)] | right[steps(cell * 2 + 1)];
      out[static_cast<std::size_t>(row)] += dots ? braille_letter(dots) : " ";
    }
  }
  return out;
}

Range range_of(std::span<const double> values) {
  Range out{unknown_value, unknown_value, unknown_value};
  double sum = 0;
  int known = 0;
  for (const double value : values) {
    if (std::isnan(value))
      continue;
    out.now = value;
    out.max = known ? std::max(out.max, value) : value;
    sum += value;
    ++known;
  }
  if (known)
    out.mean = sum / known;
  return out;
}

}  // namespace billow::client::top
