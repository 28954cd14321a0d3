// Numbers packed into two bytes, and series of them. History keeps millions of samples whose last
// digits do not matter: a value has eleven significant bits (exact below 2,048, within 0.05 %
// above), unsigned, up to 2^42. "Unknown" has a separate code, because it differs from zero.
//
// A JobSeries holds a job's whole life in at most limits::history_job_points_max points: when they
// are used up, neighbours are merged and each point covers twice the time. Its encoded form takes
// at most one page of the database.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace billow {

inline constexpr std::uint16_t packed_unknown = 0xffff;
std::uint16_t pack_number(double value);     // NaN and negative: unknown
double unpack_number(std::uint16_t packed);  // NaN: unknown

// The columns kept for a job, in this order.
enum JobColumn : std::size_t {
  col_gpu_util,
  col_sm_active,
  col_gpu_mem,
  col_gpu_power,
  col_pcie_rx,
  col_pcie_tx,
  col_nvlink_rx,
  col_nvlink_tx,
  col_cpu,
  col_mem,
  col_read,
  col_write,
  col_net_rx,
  col_net_tx,
  job_column_count
};
// Names in the API, with the factor that converts stored figures into shown ones.
struct SeriesColumn {
  const char* name;
  double scale;
};
extern const std::array<SeriesColumn, job_column_count> job_series_columns;
using JobSample = std::array<double, job_column_count>;  // stored figures; NaN: unknown

class JobSeries {
 public:
  JobSeries() = default;
  explicit JobSeries(WallTime begin);
  // Adds a sample not older than the last one. Gaps (the job was suspended, the head was down) stay
  // unknown.
  void add(WallTime at, const JobSample& sample);

  WallTime begin() const { return begin_; }
  Duration step() const { return step_; }
  std::size_t size() const;
  // The point with that number; the last may still be filling.
  JobSample point(std::size_t index) const;
  // Means over all points; NaN if nothing is known.
  JobSample mean() const;

  std::string encode() const;
  static Result<JobSeries> decode(std::string_view text);

 private:
  void flush();  // the open point becomes a kept one
  void halve();
  WallTime begin_;
  Duration step_;
  std::vector<std::array<std::uint16_t, job_column_count>> points_;
  std::int64_t open_ = -1;  // number of the point being filled; -1: none
  JobSample sum_{};
  std::array<std::uint32_t, job_column_count> count_{};
};

}  // namespace billow
