#include "view/finding.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/format.h>

namespace billow::view {
namespace {

constexpr std::size_t points_min = 10;  // fewer are not conclusive
constexpr double busy_enough = 60;      // mean GPU use above which input is not worth mentioning
constexpr double idle_below = 3;
constexpr double cpu_near_limit = 0.85;  // of its cores
constexpr double reading_hard_kib_s = 100 * 1024;

std::string rate(double kib_s) {
  return kib_s >= 1 << 20 ? fmt::format("{:.1f} GiB/s", kib_s / (1 << 20))
                          : fmt::format("{:.0f} MiB/s", kib_s / 1024);
}

// The summary of a job's series, over enough known points.
struct Observed {
  double util = 0;              // mean, in percent
  double cpu = 0;               // mean, in cores
  double reads = 0;             // mean, in KiB/s
  double mem_peak = 0;          // in MiB
  std::vector<double> engines;  // percent of the card at work: its SMs if known, else its busy time
};

std::optional<Observed> observe(const JobSeries& series) {
  if (series.size() < points_min)
    return std::nullopt;
  const JobSample mean = series.mean();
  Observed out;
  out.util = mean[col_gpu_util] * job_series_columns[col_gpu_util].scale;
  if (std::isnan(out.util))
    return std::nullopt;
  out.cpu = mean[col_cpu] * job_series_columns[col_cpu].scale;
  out.reads = mean[col_read];
  std::size_t known = 0;
  for (std::size_t i = 0; i < series.size(); ++i) {
    const JobSample p = series.point(i);
    known += !std::isnan(p[col_gpu_util]);
    if (p[col_gpu_mem] > out.mem_peak)
      out.mem_peak = p[col_gpu_mem];
    if (!std::isnan(p[col_sm_active]))
      out.engines.push_back(p[col_sm_active] * job_series_columns[col_sm_active].scale);
    else if (!std::isnan(p[col_gpu_util]))
      out.engines.push_back(p[col_gpu_util] * job_series_columns[col_gpu_util].scale);
  }
  if (known < points_min)
    return std::nullopt;
  return out;
}

Finding idle_finding(const Observed& o) {
  if (!(o.cpu > 0.5))
    return {"idle",
            fmt::format("the GPU was busy {:.0f} % of the time and hardly anything else happened",
                        o.util),
            "stop the job, or run what it waits for first"};
  return {"idle",
          fmt::format("the GPU was busy {:.0f} % of the time while {:.1f} CPU cores worked", o.util,
                      o.cpu),
          "if this step needs no GPU, run it without --gpus, and only the next step with --gpus"};
}

// Input-bound: the GPU is busy part of the time, while its input is at the limit: all cores are
// busy, or much is being read. A GPU without any activity is idle, which is a different finding.
std::optional<Finding> input_finding(const Observed& o, double cores) {
  if (cores > 0 && o.cpu >= cores * cpu_near_limit)
    return Finding{"input_bound",
                   fmt::format("the GPU was busy only {:.0f} % of the time while the CPU was at "
                               "its limit ({:.1f} of {:.1f} cores)",
                               o.util, o.cpu, cores),
                   "the input is prepared too slowly: ask for more cores (--cpus), use more "
                   "loader workers, or prepare the data beforehand"};
  if (o.reads >= reading_hard_kib_s)
    return Finding{
        "input_bound",
        fmt::format("the GPU was busy only {:.0f} % of the time while {} were read", o.util,
                    rate(o.reads)),
        "reading slows it down: keep the data on a local disk, in larger files, or read ahead"};
  return std::nullopt;
}

// A slice also has less of the card's engines: it must hold the peak memory with a tenth to spare,
// and the engine activity of 95 % of the time.
Finding headroom_finding(Observed o, double gpu_mem_mib, int cards) {
  std::sort(o.engines.begin(), o.engines.end());
  const double p95 = o.engines[(o.engines.size() * 95 + 99) / 100 - 1];
  const double need = std::max(o.mem_peak * 1.1 / gpu_mem_mib, p95 / 100);
  std::string hint = "a GPU with less memory may be enough";
  for (const double share : {0.5, 0.25, 0.2, 0.125, 0.1})
    if (cards == 1 && need <= share)
      hint = fmt::format(
          "a slice may be enough: try --gpus {} (95 % of the time at most {:.0f} % of the GPU was "
          "at work)",
          share, p95);
  return {"memory_headroom",
          fmt::format("at most {} of {:.0f} GiB of GPU memory were in use",
                      o.mem_peak < 1024 ? fmt::format("{:.0f} MiB", o.mem_peak)
                                        : fmt::format("{:.1f} GiB", o.mem_peak / 1024),
                      gpu_mem_mib / 1024),
          std::move(hint)};
}

}  // namespace

std::vector<Finding> findings(const JobSeries& series,
                              double cores,
                              double gpu_mem_mib,
                              int cards) {
  std::vector<Finding> out;
  const auto observed = observe(series);
  if (!observed)
    return out;
  if (observed->util < idle_below)
    out.push_back(idle_finding(*observed));
  else if (observed->util < busy_enough)
    if (auto input = input_finding(*observed, cores))
      out.push_back(std::move(*input));
  if (gpu_mem_mib > 0 && observed->mem_peak > 0 && observed->mem_peak < gpu_mem_mib / 4)
    out.push_back(headroom_finding(*observed, gpu_mem_mib, cards));
  return out;
}

}  // namespace billow::view
