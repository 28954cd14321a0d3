// The plot of `billow simulate`: allocation over time as a self-contained SVG.
#include <cmath>

#include <fmt/format.h>

#include "net/xml.h"
#include "simulate/simulate.h"

namespace billow::sched {
namespace {

constexpr double width = 960, height = 400, left = 64, bottom = 48, top = 40, right = 24;

// 1, 2 or 5 times a power of ten: five to ten steps to `most`.
double nice_step(double most) {
  const double raw = std::max(most, 1e-9) / 10, base = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double k : {1.0, 2.0, 5.0, 10.0})
    if (k * base >= raw)
      return k * base;
  return 10 * base;
}

// Seconds are hard to read beyond a few minutes.
std::pair<double, const char*> time_unit(double seconds) {
  if (seconds > 4 * 86400.0)
    return {86400.0, "days"};
  if (seconds > 3 * 3600.0)
    return {3600.0, "hours"};
  if (seconds > 3 * 60.0)
    return {60.0, "minutes"};
  return {1.0, "seconds"};
}

using Series = std::vector<std::pair<double, double>>;

// The mean of a series in each pixel column, weighted by time, so that a long trace shows its load
// and not its noise. `x_max` is in seconds, like the series.
std::vector<double> means_by_column(const Series& series, double x_max, std::size_t columns) {
  std::vector<double> sum(columns + 1, 0), weight(columns + 1, 0);
  const double scale = static_cast<double>(columns) / x_max;
  for (std::size_t i = 0; i < series.size(); ++i) {
    const double to = i + 1 < series.size() ? series[i + 1].first : x_max;
    double a = series[i].first * scale;
    const double b = std::max(to * scale, a + 1e-9);
    while (a < b) {
      const auto c = static_cast<std::size_t>(a);
      const double end = std::min(b, std::floor(a) + 1);
      if (c <= columns) {
        sum[c] += series[i].second * (end - a);
        weight[c] += end - a;
      }
      a = end;
    }
  }
  std::vector<double> means(columns);
  double last = 0;
  for (std::size_t c = 0; c < columns; ++c) {
    if (weight[c] > 0)
      last = sum[c] / weight[c];
    means[c] = last;
  }
  return means;
}

// Maps values to page coordinates.
struct Frame {
  double x_max, y_max;  // in seconds (or the unit of x), and in units of y
  double unit = 1;      // of the x axis
  const char* unit_name = "";

  double x(double v) const { return left + (width - left - right) * v / (x_max / unit); }
  double y(double v) const {
    return height - bottom - (height - bottom - top) * std::min(v, y_max) / std::max(y_max, 1e-9);
  }
};

std::string page(const std::string& title) {
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
             "height=\"{1}\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#333\">\n",
             width, height) +
         fmt::format(
             "<rect width=\"{}\" height=\"{}\" fill=\"#fff\"/><text x=\"{}\" y=\"18\" "
             "font-size=\"14\">{}</text>\n",
             width, height, left, net::escape_xml(title));
}

std::string axes(const Frame& frame, const std::string& x_label, const std::string& y_label) {
  std::string out;
  const double x_max = frame.x_max / frame.unit, y_max = frame.y_max;
  const double y_step = nice_step(y_max), x_step = nice_step(x_max);
  for (double v = 0; v <= y_max * 1.0001; v += y_step)
    out += fmt::format(
        "<path d=\"M{:.1f} {:.1f}H{:.1f}\" stroke=\"#e4e4e4\"/><text x=\"{:.1f}\" y=\"{:.1f}\" "
        "text-anchor=\"end\">{:g}</text>\n",
        left, frame.y(v), width - right, left - 6, frame.y(v) + 4, v);
  // The maximum gets a separate label if no step of the scale is near it.
  out += fmt::format("<path d=\"M{:.1f} {:.1f}H{:.1f}\" stroke=\"#999\" stroke-dasharray=\"4 3\"/>",
                     left, frame.y(y_max), width - right);
  if (y_max - std::floor(y_max / y_step * 1.0001) * y_step > 0.35 * y_step)
    out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{:g}</text>\n",
                       left - 6, frame.y(y_max) + 4, y_max);
  for (double t = 0; t <= x_max * 1.0001; t += x_step)
    out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{:g}</text>\n",
                       frame.x(t), height - bottom + 18, t);
  out += fmt::format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text><text x=\"8\" "
      "y=\"{:.1f}\">{}</text>\n",
      (left + width - right) / 2, height - 8,
      net::escape_xml(*frame.unit_name ? fmt::format("{}, {}", x_label, frame.unit_name) : x_label),
      top - 8, net::escape_xml(y_label));
  return out;
}

std::string curve(const Frame& frame, const Series& series, bool filled) {
  const auto columns = static_cast<std::size_t>(width - left - right);
  const std::vector<double> means = means_by_column(series, frame.x_max, columns);
  std::string path;
  for (std::size_t c = 0; c < columns; ++c)
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", left + static_cast<double>(c),
                        frame.y(means[c]));
  if (!filled)
    return fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"#d97706\" stroke-width=\"1.2\"/>\n",
                       path);
  return fmt::format(
      "<path d=\"{0}L{1:.1f} {2:.1f}L{3:.1f} {2:.1f}Z\" fill=\"#0b6\" "
      "fill-opacity=\"0.18\"/><path d=\"{0}\" fill=\"none\" stroke=\"#0b6\" "
      "stroke-width=\"1.5\"/>\n",
      path, left + static_cast<double>(columns - 1), frame.y(0), left);
}

std::string legend() {
  return fmt::format(
      "<path d=\"M{0:.1f} 15h18\" stroke=\"#0b6\" stroke-width=\"3\"/><text x=\"{1:.1f}\" "
      "y=\"19\">allocated</text><path d=\"M{2:.1f} 15h18\" stroke=\"#d97706\" "
      "stroke-width=\"3\"/><text x=\"{3:.1f}\" y=\"19\">queued (cut off at the top)</text>\n",
      width - 330, width - 308, width - 236, width - 214);
}

}  // namespace

std::string plot_svg(const Series& steps,
                     double y_max,
                     const std::string& title,
                     const std::string& x_label,
                     const std::string& y_label,
                     const Series& waiting) {
  Frame frame{.x_max = 1e-9, .y_max = y_max};
  for (const Series* series : {&steps, &waiting})
    if (!series->empty())
      frame.x_max = std::max(frame.x_max, series->back().first);
  if (x_label == "time")
    std::tie(frame.unit, frame.unit_name) = time_unit(frame.x_max);
  std::string out = page(title) + axes(frame, x_label, y_label);
  if (!waiting.empty())
    out += curve(frame, waiting, false) + legend();
  return out + curve(frame, steps, true) + "</svg>\n";
}

}  // namespace billow::sched
