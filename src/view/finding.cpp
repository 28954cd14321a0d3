#include "view/finding.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace billow::view {
namespace {

constexpr std::size_t points_min = 10;  // fewer say nothing
constexpr double busy_enough =
    60;  // mean GPU use from which on input is not the problem worth naming
constexpr double idle_below = 3;
constexpr double cpu_near_limit = 0.85;  // of its cores
constexpr double reading_hard_kib_s = 100 * 1024;

std::string rate(double kib_s) {
  return kib_s >= 1 << 20 ? fmt::format("{:.1f} GiB/s", kib_s / (1 << 20))
                          : fmt::format("{:.0f} MiB/s", kib_s / 1024);
}

}  // namespace

// Input-bound: the card is used in part, again and again rather than never, while what feeds it is
// at its limit: all cores busy, or much being read. A card that does nothing at all is idle, which
// is another matter (and another's money).
std::vector<Finding> findings(const JobSeries& series,
                              double cores,
                              double gpu_mem_mib,
                              int cards) {
  std::vector<Finding> out;
  if (series.size() < points_min)
    return out;
  const JobSample mean = series.mean();
  const double util = mean[col_gpu_util] * job_series_columns[col_gpu_util].scale;
  if (std::isnan(util))
    return out;
  std::size_t known = 0;
  double mem_peak = 0;
  std::vector<double> engines;  // how much of the card was at work: its SMs where it tells, else
                                // the time it was busy
  for (std::size_t i = 0; i < series.size(); ++i) {
    const JobSample p = series.point(i);
    if (!std::isnan(p[col_gpu_util]))
      ++known;
    if (p[col_gpu_mem] > mem_peak)
      mem_peak = p[col_gpu_mem];
    if (!std::isnan(p[col_sm_active]))
      engines.push_back(p[col_sm_active] * job_series_columns[col_sm_active].scale);
    else if (!std::isnan(p[col_gpu_util]))
      engines.push_back(p[col_gpu_util] * job_series_columns[col_gpu_util].scale);
  }
  if (known < points_min)
    return out;
  const double cpu = mean[col_cpu] * job_series_columns[col_cpu].scale, reads = mean[col_read];
  if (util < idle_below) {
    if (!(cpu > 0.5))
      out.push_back(
          {"idle",
           fmt::format("the GPU was busy {:.0f} % of the time and hardly anything else happened",
                       util),
           "stop it, or run what it waits for first"});
    else
      out.push_back(
          {"idle",
           fmt::format("the GPU was busy {:.0f} % of the time while {:.1f} CPU cores worked", util,
                       cpu),
           "does this step need a GPU? Run it without --gpus, and the next one with"});
  } else if (util < busy_enough) {
    if (cores > 0 && cpu >= cores * cpu_near_limit)
      out.push_back({"input_bound",
                     fmt::format("the GPU was busy only {:.0f} % of the time while the CPU was at "
                                 "its limit ({:.1f} of {:.1f} cores)",
                                 util, cpu, cores),
                     "the input is prepared too slowly: ask for more cores (--cpus), use more "
                     "loader workers, or prepare the data beforehand"});
    else if (reads >= reading_hard_kib_s)
      out.push_back(
          {"input_bound",
           fmt::format("the GPU was busy only {:.0f} % of the time while {} were read", util,
                       rate(reads)),
           "reading holds it up: keep the data on a local disk, in larger files, or read ahead"});
  }
  // A slice has less of the card's engines too: it must hold the memory with a tenth to spare, and
  // what was at work in 95 % of the time.
  if (gpu_mem_mib > 0 && mem_peak > 0 && mem_peak < gpu_mem_mib / 4) {
    std::sort(engines.begin(), engines.end());
    const double p95 = engines[(engines.size() * 95 + 99) / 100 - 1];
    const double need = std::max(mem_peak * 1.1 / gpu_mem_mib, p95 / 100);
    std::string hint = "a card with less memory may do as well";
    for (const double share : {0.5, 0.25, 0.2, 0.125, 0.1})
      if (cards == 1 && need <= share)
        hint = fmt::format(
            "a slice may do: try --gpus {} (95 % of the time no more than {:.0f} % of the card was "
            "at work)",
            share, p95);
    out.push_back({"memory_headroom",
                   fmt::format("at most {} of {:.0f} GiB of GPU memory were in use",
                               mem_peak < 1024 ? fmt::format("{:.0f} MiB", mem_peak)
                                               : fmt::format("{:.1f} GiB", mem_peak / 1024),
                               gpu_mem_mib / 1024),
                   std::move(hint)});
  }
  return out;
}

}  // namespace billow::view
