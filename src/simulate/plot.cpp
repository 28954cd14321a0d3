// The plot of `billow simulate`: allocation over time as an SVG that stands for itself.
#include <cmath>

#include <fmt/format.h>

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

// Seconds are hard to read beyond some minutes.
std::pair<double, const char*> time_unit(double seconds) {
  if (seconds > 4 * 86400.0)
    return {86400.0, "days"};
  if (seconds > 3 * 3600.0)
    return {3600.0, "hours"};
  if (seconds > 3 * 60.0)
    return {60.0, "minutes"};
  return {1.0, "seconds"};
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else
      out += c;
  }
  return out;
}

}  // namespace

std::string plot_svg(const std::vector<std::pair<double, double>>& steps,
                     double y_max,
                     const std::string& title,
                     const std::string& x_label,
                     const std::string& y_label,
                     const std::vector<std::pair<double, double>>& waiting) {
  double x_max = 1e-9;
  for (const auto* series : {&steps, &waiting})
    if (!series->empty())
      x_max = std::max(x_max, series->back().first);
  const auto [unit, unit_name] =
      x_label == "time" ? time_unit(x_max) : std::pair<double, const char*>{1.0, ""};
  x_max /= unit;
  const auto x = [&](double v) {
    return left + (width - left - right) * v / x_max;
  };
  const auto y = [&](double v) {
    return height - bottom - (height - bottom - top) * std::min(v, y_max) / std::max(y_max, 1e-9);
  };
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#333\">\n",
      width, height);
  out += fmt::format(
      "<rect width=\"{}\" height=\"{}\" fill=\"#fff\"/><text x=\"{}\" y=\"18\" "
      "font-size=\"14\">{}</text>\n",
      width, height, left, escaped(title));
  const double y_step = nice_step(y_max), x_step = nice_step(x_max);
  for (double v = 0; v <= y_max * 1.0001; v += y_step)
    out += fmt::format(
        "<path d=\"M{:.1f} {:.1f}H{:.1f}\" stroke=\"#e4e4e4\"/><text x=\"{:.1f}\" y=\"{:.1f}\" "
        "text-anchor=\"end\">{:g}</text>\n",
        left, y(v), width - right, left - 6, y(v) + 4, v);
  // All there is: where no step of the scale falls near it, it is written beside it.
  out += fmt::format("<path d=\"M{:.1f} {:.1f}H{:.1f}\" stroke=\"#999\" stroke-dasharray=\"4 3\"/>",
                     left, y(y_max), width - right);
  if (y_max - std::floor(y_max / y_step * 1.0001) * y_step > 0.35 * y_step)
    out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{:g}</text>\n",
                       left - 6, y(y_max) + 4, y_max);
  for (double t = 0; t <= x_max * 1.0001; t += x_step)
    out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{:g}</text>\n", x(t),
                       height - bottom + 18, t);
  out += fmt::format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text><text x=\"8\" "
      "y=\"{:.1f}\">{}</text>\n",
      (left + width - right) / 2, height - 8,
      escaped(*unit_name ? fmt::format("{}, {}", x_label, unit_name) : x_label), top - 8,
      escaped(y_label));
  const auto curve = [&](const std::vector<std::pair<double, double>>& series, bool filled) {
    // One column a pixel: the mean of what was in it, weighted by time, so that a long trace shows
    // its load and not its noise.
    std::string path;
    const auto columns = static_cast<std::size_t>(width - left - right);
    std::vector<double> sum(columns + 1, 0), weight(columns + 1, 0);
    for (std::size_t i = 0; i < series.size(); ++i) {
      const double from = series[i].first / unit,
                   to = i + 1 < series.size() ? series[i + 1].first / unit : x_max;
      double a = from / x_max * static_cast<double>(columns);
      const double b = std::max(to / x_max * static_cast<double>(columns), a + 1e-9);
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
    double last = 0;
    for (std::size_t c = 0; c < columns; ++c) {
      if (weight[c] > 0)
        last = sum[c] / weight[c];
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L",
                          left + static_cast<double>(c), y(last));
    }
    if (!filled)
      return fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"#d97706\" stroke-width=\"1.2\"/>\n",
                         path);
    return fmt::format(
        "<path d=\"{0}L{1:.1f} {2:.1f}L{3:.1f} {2:.1f}Z\" fill=\"#0b6\" "
        "fill-opacity=\"0.18\"/><path d=\"{0}\" fill=\"none\" stroke=\"#0b6\" "
        "stroke-width=\"1.5\"/>\n",
        path, left + static_cast<double>(columns - 1), y(0), left);
  };
  if (!waiting.empty()) {
    out += curve(waiting, false);
    out += fmt::format(
        "<path d=\"M{0:.1f} 15h18\" stroke=\"#0b6\" stroke-width=\"3\"/><text x=\"{1:.1f}\" "
        "y=\"19\">given out</text><path d=\"M{2:.1f} 15h18\" stroke=\"#d97706\" "
        "stroke-width=\"3\"/><text x=\"{3:.1f}\" y=\"19\">waited for (cut off at the top)</text>\n",
        width - 330, width - 308, width - 236, width - 214);
  }
  return out + curve(steps, true) + "</svg>\n";
}

}  // namespace billow::sched
