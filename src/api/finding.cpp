#include "api/finding.h"

#include <cmath>

#include <fmt/format.h>

namespace billow::api {
namespace {

constexpr std::size_t points_min = 10;      // fewer say nothing
constexpr double busy_enough = 60;          // mean GPU use from which on input is not the problem worth naming
constexpr double idle_below = 3;
constexpr double cpu_near_limit = 0.85;     // of its cores
constexpr double reading_hard_kib_s = 100 * 1024;

std::string rate(double kib_s) { return kib_s >= 1 << 20 ? fmt::format("{:.1f} GiB/s", kib_s / (1 << 20)) : fmt::format("{:.0f} MiB/s", kib_s / 1024); }

}  // namespace

// Input-bound: the card is used in part, again and again rather than never, while what feeds it is at its limit: all cores busy, or
// much being read. A card that does nothing at all is idle, which is another matter (and another's money).
std::vector<Finding> findings(const JobSeries& series, double cores, double gpu_mem_mib) {
  std::vector<Finding> out;
  if (series.size() < points_min) return out;
  const JobSample mean = series.mean();
  const double util = mean[col_gpu_util] * job_series_columns[col_gpu_util].scale;
  if (std::isnan(util)) return out;
  std::size_t known = 0;
  double mem_peak = 0;
  for (std::size_t i = 0; i < series.size(); ++i) {
    const JobSample p = series.point(i);
    if (!std::isnan(p[col_gpu_util])) ++known;
    if (p[col_gpu_mem] > mem_peak) mem_peak = p[col_gpu_mem];
  }
  if (known < points_min) return out;
  const double cpu = mean[col_cpu] * job_series_columns[col_cpu].scale, reads = mean[col_read];
  if (util < idle_below) {
    if (!(cpu > 0.5)) out.push_back({"idle", fmt::format("the GPU was busy {:.0f} % of the time and hardly anything else happened", util), "stop it, or run what it waits for first"});
    else out.push_back({"idle", fmt::format("the GPU was busy {:.0f} % of the time while {:.1f} CPU cores worked", util, cpu), "does this step need a GPU? Run it without --gpus, and the next one with"});
  } else if (util < busy_enough) {
    if (cores > 0 && cpu >= cores * cpu_near_limit)
      out.push_back({"input_bound", fmt::format("the GPU was busy only {:.0f} % of the time while the CPU was at its limit ({:.1f} of {:.1f} cores)", util, cpu, cores),
                     "the input is prepared too slowly: ask for more cores (--cpus), use more loader workers, or prepare the data beforehand"});
    else if (reads >= reading_hard_kib_s)
      out.push_back({"input_bound", fmt::format("the GPU was busy only {:.0f} % of the time while {} were read", util, rate(reads)),
                     "reading holds it up: keep the data on a local disk, in larger files, or read ahead"});
  }
  // A slice has less of the card's time too: for a card that is busy only the memory is too much.
  if (gpu_mem_mib > 0 && mem_peak > 0 && mem_peak < gpu_mem_mib / 4)
    out.push_back({"memory_headroom", fmt::format("at most {} of {:.0f} GiB of GPU memory were in use", mem_peak < 1024 ? fmt::format("{:.0f} MiB", mem_peak) : fmt::format("{:.1f} GiB", mem_peak / 1024), gpu_mem_mib / 1024),
                   util < busy_enough ? "a slice may do: try --gpus 0.25 or --gpu-mem" : "a card with less memory may do as well"});
  return out;
}

}  // namespace billow::api
