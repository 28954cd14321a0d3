// A number in two bytes, and series made of them. History keeps millions of samples whose last
// digits nobody looks at: a value is stored with eleven significant bits (exact below 2,048, within
// 0.05 % above), unsigned, up to 2^42, and "unknown" has a code of its own, because an unknown is
// never a zero.
//
// A JobSeries holds a job's whole life in at most limits::history_job_points_max points: when they
// are used up, neighbours are merged and each point stands for twice the time. Its text form is one
// page of the database at most.
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

// What is kept of a job, in this order.
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
// Names in the API, with the factor that makes the stored figure the shown one.
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
  // A sample at a time not before the last one. Gaps (the job was suspended, the head away) stay
  // unknown.
  void add(WallTime at, const JobSample& sample);

  WallTime begin() const { return begin_; }
  Duration step() const { return step_; }
  std::size_t size() const;
  // The point with that number; the last may still be filling.
  JobSample point(std::size_t index) const;
  // Means over all points, NaN where nothing is known.
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
