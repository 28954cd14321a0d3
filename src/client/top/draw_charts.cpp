// Charts of a GPU, a job, an endpoint, the fleet's spending: from the head's history where it has
// come, else from the samples of this screen.
#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "base/relative_time.h"
#include "client/top/charts.h"
#include "client/top/draw.h"
#include "client/top/words.h"

namespace billow::client::top {
namespace {

constexpr int chart_gap = 2, chart_columns_least = 24;

std::vector<double> series_in(const Json& history, const char* name) {
  std::vector<double> out;
  for (const Json& value : history.at("series", name).items())
    out.push_back(value.is_number() ? value.double_or(0)
                                    : std::numeric_limits<double>::quiet_NaN());
  return out;
}

std::string span_text(const Json& history) {
  const double s = history["step_s"].double_or(0) * history["points"].double_or(0);
  return s > 0 ? rough_duration(seconds(static_cast<std::int64_t>(s))) : "";
}

std::string figure(double value, Chart::Unit unit) {
  if (std::isnan(value))
    return "-";
  switch (unit) {
    case Chart::Unit::percent:
      return percent(value);
    case Chart::Unit::mebibytes:
      return gibibytes(static_cast<std::int64_t>(value));
    case Chart::Unit::watts:
      return fmt::format("{:.0f}W", value);
    case Chart::Unit::celsius:
      return fmt::format("{:.0f}C", value);
    case Chart::Unit::usd_per_hour:
      return fmt::format("${:.2f}/h", value);
    case Chart::Unit::cores:
      return fmt::format("{:.2f}", value);
    case Chart::Unit::per_second:
      return fmt::format("{:.1f}/s", value);
  }
  return {};
}

bool any_known(const std::vector<double>& values) {
  return std::ranges::any_of(values, [](double v) { return !std::isnan(v); });
}

// Charts without a natural limit reach to their own peak.
double peak(const std::vector<double>& values) {
  const double max = range_of(values).max;
  return max > 0 ? max : 1;
}

std::vector<Chart> gpu_charts(const State& state, const Subject& about) {
  const NodeEntry* node = state.fleet.node_by_name(about.name);
  if (!node || about.card < 0 || about.card >= std::ssize(node->cards))
    return {};
  const Card& card = node->cards[static_cast<std::size_t>(about.card)];
  const Json& history = state.answer("history", history_path(about));
  if (!history.is_object())
    return {{"use", card.busy.newest(), 100, Chart::Unit::percent, ""},
            {"memory", card.memory.newest(), 100, Chart::Unit::percent, "", Colour::cyan}};
  const std::string span = span_text(history);
  const auto watts = series_in(history, "power_w"), heat = series_in(history, "temperature_c");
  return {{"use", series_in(history, "util_pct"), 100, Chart::Unit::percent, span},
          {"memory", series_in(history, "mem_used_mib"),
           static_cast<double>(std::max<std::int64_t>(1, card.mem_mib)), Chart::Unit::mebibytes,
           span, Colour::cyan},
          {"power", watts, peak(watts), Chart::Unit::watts, span, Colour::yellow},
          {"heat", heat, 100, Chart::Unit::celsius, span, Colour::red}};
}

std::vector<Chart> job_charts(const State& state, const Subject& about) {
  const Json& history = state.answer("history", history_path(about));
  const JobEntry* job = state.fleet.job(about.id);
  std::vector<Chart> out;
  if (!history.is_object()) {
    if (job && !job->where.empty())
      out.push_back({"GPU use", state.fleet.busy_of(*job, state.now_ms)});
    return out;
  }
  const std::string span = span_text(history);
  const auto add = [&](const char* name, const char* series, Chart::Unit unit, Colour colour) {
    auto values = series_in(history, series);
    if (!any_known(values))
      return;
    const double max = unit == Chart::Unit::percent ? 100 : peak(values);
    out.push_back({name, std::move(values), max, unit, span, colour});
  };
  add("GPU use", "gpu_util_pct", Chart::Unit::percent, Colour::green);
  add("GPU memory", "gpu_mem_mib", Chart::Unit::mebibytes, Colour::cyan);
  add("power", "gpu_power_w", Chart::Unit::watts, Colour::yellow);
  add("CPU cores", "cpu_cores", Chart::Unit::cores, Colour::blue);
  add("memory", "mem_mib", Chart::Unit::mebibytes, Colour::none);
  return out;
}

}  // namespace

std::vector<Chart> charts_of(const State& state, const Subject& about) {
  if (state.tab == Tab::money && state.pages.empty()) {
    const Json& history = state.answer("spending", spending_path);
    const auto spend = series_in(history, "spend_usd_per_h");
    const auto idle = series_in(history, "idle_usd_per_h"), use = series_in(history, "util_pct");
    const std::string span = span_text(history);
    return {{"spending", spend, peak(spend), Chart::Unit::usd_per_hour, span, Colour::cyan},
            {"idle", idle, peak(spend), Chart::Unit::usd_per_hour, span, Colour::yellow},
            {"use", use, 100, Chart::Unit::percent, span}};
  }
  switch (about.kind) {
    case Subject::Kind::gpu:
      return gpu_charts(state, about);
    case Subject::Kind::job:
      return job_charts(state, about);
    case Subject::Kind::node:
      if (const NodeEntry* node = state.fleet.node_by_name(about.name))
        return {{"use of all GPUs", node->busy.newest()}};
      return {};
    case Subject::Kind::endpoint: {
      const auto found = state.fleet.endpoints.find(about.name);
      if (found == state.fleet.endpoints.end())
        return {};
      auto rates = found->second.requests.newest();
      for (double& rate : rates)
        rate /= 10;
      const double max = peak(rates);
      return {{"requests", std::move(rates), max, Chart::Unit::per_second}};
    }
    case Subject::Kind::account:
    case Subject::Kind::none:
      return {};
  }
  return {};
}

void draw_charts(Canvas& canvas, int row, int rows, const std::vector<Chart>& charts) {
  const int cols = canvas.size().cols;
  const int beside = std::clamp((cols + chart_gap) / (chart_columns_least + chart_gap), 1,
                                std::max(1, static_cast<int>(charts.size())));
  const int width = (cols + chart_gap) / beside - chart_gap;
  if (rows < 2 || width < 4)
    return;
  for (int i = 0; i < beside && i < std::ssize(charts); ++i) {
    const Chart& chart = charts[static_cast<std::size_t>(i)];
    const int col = i * (width + chart_gap);
    const Range range = range_of(chart.values);
    // The longest form that fits; figures are never cut.
    const std::string now = fmt::format("{} {}", chart.name, figure(range.now, chart.unit));
    const std::string mean = fmt::format(
        "{}, mean {}, peak {}", now, figure(range.mean, chart.unit), figure(range.max, chart.unit));
    const std::string full =
        chart.span.empty() ? mean : fmt::format("{}, last {}", mean, chart.span);
    const std::string& title = columns_wide(full) <= width   ? full
                               : columns_wide(mean) <= width ? mean
                                                             : now;
    canvas.put(row, col, title, {Colour::none, true}, width);
    const auto picture = area_chart(chart.values, width, rows - 1, chart.max, canvas.utf8());
    for (int k = 0; k < rows - 1; ++k)
      canvas.put(row + 1 + k, col, picture[static_cast<std::size_t>(k)], {chart.colour}, width);
    if (!any_known(chart.values))
      canvas.put(row + 1, col, "no figures yet", dim_style(), width);
  }
}

}  // namespace billow::client::top
