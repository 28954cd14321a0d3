// History of GPUs, jobs and the fleet, so that last week's charts exist without Prometheus.
// Samples, not events: nothing here is needed after a crash, so nothing is synced, and a damaged
// file is started over.
//
// Its size is known in advance (limits::history_*). GPUs and the fleet are in rings in one file,
// `history/rings`: a slot's position follows from its time, and it carries that time, so there is
// no position to store and a restart costs nothing. Coarser rings are computed from the finer ones
// as samples arrive. Jobs are in `history/jobs.db`, one row each, the oldest deleted first.
//
// Safe for any thread: one mutex. Meant for workers: it reads and writes files.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "store/series.h"

namespace billow {

// The columns kept for a GPU, in this order; the fleet keeps its own figures in the same slots.
enum GpuColumn : std::size_t {
  gpu_util,
  gpu_sm_active,
  gpu_mem,
  gpu_power,
  gpu_temperature,
  gpu_pcie_rx,
  gpu_pcie_tx,
  gpu_nvlink_rx,
  gpu_nvlink_tx,
  gpu_columns
};
enum FleetColumn : std::size_t {
  fleet_util,
  fleet_given,
  fleet_gpus,
  fleet_power,
  fleet_running,
  fleet_queued,
  fleet_spend,
  fleet_idle_spend,
  fleet_columns
};
enum EndpointColumn : std::size_t {
  endpoint_requests,
  endpoint_errors,
  endpoint_p50,
  endpoint_p95,
  endpoint_p99,
  endpoint_ready,
  endpoint_sleeping,
  endpoint_cold_starts,
  endpoint_spend,
  endpoint_columns
};
static_assert(std::size_t{endpoint_columns} <= std::size_t{gpu_columns});
static_assert(std::size_t{fleet_columns} <= std::size_t{gpu_columns});
using GpuSampleRow = std::array<double, gpu_columns>;  // stored figures; NaN: unknown
extern const std::array<SeriesColumn, gpu_columns> gpu_series_columns;
extern const std::array<SeriesColumn, fleet_columns> fleet_series_columns;
extern const std::array<SeriesColumn, endpoint_columns> endpoint_series_columns;

struct SeriesAnswer {
  WallTime from;  // the beginning of the first point
  Duration step;
  std::vector<GpuSampleRow> points;  // one per step; all unknown if there was nothing
  std::vector<double> known_s;       // of each point: the seconds whose values it is the mean of
};

class History {
 public:
  static Result<std::unique_ptr<History>> open(const std::string& directory);
  virtual ~History() = default;

  struct Sample {
    std::string key;  // "NODE/UUID"; "fleet"; "endpoint NAME"
    GpuSampleRow values;
  };
  // Samples of one moment, kept in ten-second slots: a second sample within the same slot replaces
  // the first.
  virtual Status add(WallTime at, const std::vector<Sample>& samples) = 0;
  // Reads the finest ring that reaches back to `from`, with at most `points_max` points after
  // merging neighbours.
  virtual Result<SeriesAnswer> read(const std::string& key,
                                    WallTime from,
                                    WallTime to,
                                    std::size_t points_max) const = 0;

  struct JobRecord {
    JobId job;
    std::string series;  // JobSeries::encode
  };
  virtual Status save_jobs(const std::vector<JobRecord>& jobs) = 0;
  virtual Result<std::optional<JobSeries>> job(JobId id) const = 0;

  virtual std::uint64_t bytes() const = 0;  // on disk, now
};

}  // namespace billow
