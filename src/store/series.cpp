#include "store/series.h"

#include <bit>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "base/limits.h"

namespace billow {
namespace {

constexpr unsigned mantissa_bits = 11;
constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

template <class T>
void put(std::string& out, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i)
    out += static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i));
}
template <class T>
bool take(std::string_view& in, T& value) {
  if (in.size() < sizeof(T))
    return false;
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i)
    bits |= static_cast<std::uint64_t>(static_cast<unsigned char>(in[i])) << (8 * i);
  value = static_cast<T>(bits);
  in.remove_prefix(sizeof(T));
  return true;
}

}  // namespace

// Below 2^11 the number itself; above, the five high bits count how often it was halved.
std::uint16_t pack_number(double value) {
  if (!(value >= 0))
    return packed_unknown;
  std::uint64_t n = value >= 0x1p42 ? (std::uint64_t{1} << 42) - 1
                                    : static_cast<std::uint64_t>(std::llround(value));
  unsigned shift = 0;
  if (const auto bits = static_cast<unsigned>(std::bit_width(n)); bits > mantissa_bits) {
    shift = bits - mantissa_bits;
    n = (n + (std::uint64_t{1} << (shift - 1))) >> shift;
    if (n >> mantissa_bits) {
      n >>= 1;
      ++shift;
    }
  }
  if (shift > 30)
    return static_cast<std::uint16_t>(30u << mantissa_bits | ((1u << mantissa_bits) - 1));
  return static_cast<std::uint16_t>(shift << mantissa_bits | n);
}
double unpack_number(std::uint16_t packed) {
  if (packed == packed_unknown)
    return unknown;
  return std::ldexp(static_cast<double>(packed & ((1u << mantissa_bits) - 1)),
                    packed >> mantissa_bits);
}

const std::array<SeriesColumn, job_column_count> job_series_columns = {{
    {"gpu_util_pct", 0.1},
    {"sm_active_pct", 0.1},
    {"gpu_mem_mib", 1},
    {"gpu_power_w", 0.1},
    {"pcie_rx_kib_s", 1},
    {"pcie_tx_kib_s", 1},
    {"nvlink_rx_kib_s", 1},
    {"nvlink_tx_kib_s", 1},
    {"cpu_cores", 0.001},
    {"mem_mib", 1},
    {"read_kib_s", 1},
    {"write_kib_s", 1},
    {"node_net_rx_kib_s", 1},
    {"node_net_tx_kib_s", 1},
}};

// With it, all points together still fit twice into a time.
constexpr Duration step_max{INT64_MAX / 4 / std::int64_t{limits::history_job_points_max}};

JobSeries::JobSeries(WallTime begin) : begin_(begin), step_(limits::history_job_step) {}

void JobSeries::add(WallTime at, const JobSample& sample) {
  if (at < begin_)
    return;
  std::int64_t index = (at - begin_).ns / step_.ns;
  while (index >= static_cast<std::int64_t>(limits::history_job_points_max)) {
    halve();
    index = (at - begin_).ns / step_.ns;
  }
  if (open_ >= 0 && index != open_)
    flush();
  open_ = index;
  for (std::size_t c = 0; c < job_column_count; ++c) {
    if (!(sample[c] >= 0))
      continue;
    sum_[c] += sample[c];
    ++count_[c];
  }
}

void JobSeries::flush() {
  if (open_ < 0)
    return;
  std::array<std::uint16_t, job_column_count> nothing;
  nothing.fill(packed_unknown);
  while (points_.size() < static_cast<std::size_t>(open_))
    points_.push_back(nothing);
  std::array<std::uint16_t, job_column_count> point = nothing;
  for (std::size_t c = 0; c < job_column_count; ++c)
    if (count_[c])
      point[c] = pack_number(sum_[c] / count_[c]);
  if (points_.size() == static_cast<std::size_t>(open_))
    points_.push_back(point);
  else
    points_[static_cast<std::size_t>(open_)] = point;
  sum_ = {};
  count_ = {};
  open_ = -1;
}

void JobSeries::halve() {
  flush();
  const std::size_t half = (points_.size() + 1) / 2;
  for (std::size_t i = 0; i < half; ++i) {
    for (std::size_t c = 0; c < job_column_count; ++c) {
      const double a = unpack_number(points_[2 * i][c]),
                   b = 2 * i + 1 < points_.size() ? unpack_number(points_[2 * i + 1][c]) : unknown;
      points_[i][c] = std::isnan(a)   ? pack_number(b)
                      : std::isnan(b) ? pack_number(a)
                                      : pack_number((a + b) / 2);
    }
  }
  points_.resize(half);
  step_ = step_ * 2;
}

std::size_t JobSeries::size() const {
  return std::max(points_.size(), static_cast<std::size_t>(open_ + 1));
}

JobSample JobSeries::point(std::size_t index) const {
  JobSample out;
  out.fill(unknown);
  if (static_cast<std::int64_t>(index) == open_) {
    for (std::size_t c = 0; c < job_column_count; ++c)
      if (count_[c])
        out[c] = sum_[c] / count_[c];
  } else if (index < points_.size()) {
    for (std::size_t c = 0; c < job_column_count; ++c)
      out[c] = unpack_number(points_[index][c]);
  }
  return out;
}

JobSample JobSeries::mean() const {
  JobSample sum{};
  std::array<std::size_t, job_column_count> count{};
  for (std::size_t i = 0; i < size(); ++i) {
    const JobSample p = point(i);
    for (std::size_t c = 0; c < job_column_count; ++c)
      if (!std::isnan(p[c])) {
        sum[c] += p[c];
        ++count[c];
      }
  }
  for (std::size_t c = 0; c < job_column_count; ++c)
    sum[c] = count[c] ? sum[c] / static_cast<double>(count[c]) : unknown;
  return sum;
}

// version, begin, step, points, then column by column: a constant column is stored as its one
// value.
std::string JobSeries::encode() const {
  JobSeries whole = *this;
  whole.flush();
  std::string out;
  put<std::uint8_t>(out, 1);
  put<std::int64_t>(out, begin_.ns);
  put<std::int64_t>(out, step_.ns);
  put<std::uint16_t>(out, static_cast<std::uint16_t>(whole.points_.size()));
  for (std::size_t c = 0; c < job_column_count; ++c) {
    bool same = true;
    for (const auto& point : whole.points_)
      same = same && point[c] == whole.points_.front()[c];
    put<std::uint8_t>(out, same ? 0 : 1);
    if (same)
      put<std::uint16_t>(out, whole.points_.empty() ? packed_unknown : whole.points_.front()[c]);
    else
      for (const auto& point : whole.points_)
        put<std::uint16_t>(out, point[c]);
  }
  return out;
}

Result<JobSeries> JobSeries::decode(std::string_view text) {
  const auto damaged = [] {
    return fail(Code::internal, "a stored series cannot be read");
  };
  JobSeries out;
  std::uint8_t version = 0;
  std::uint16_t points = 0;
  if (!take(text, version) || version != 1 || !take(text, out.begin_.ns) ||
      !take(text, out.step_.ns) || !take(text, points))
    return damaged();
  // Times far from any real one would overflow in later sums.
  if (out.begin_.ns < 0 || out.begin_.ns > INT64_MAX / 2 || out.step_.ns <= 0 ||
      out.step_ > step_max || points > limits::history_job_points_max)
    return damaged();
  out.points_.resize(points);
  for (std::size_t c = 0; c < job_column_count; ++c) {
    std::uint8_t kind = 0;
    if (!take(text, kind))
      return damaged();
    std::uint16_t value = 0;
    if (kind == 0 && !take(text, value))
      return damaged();
    for (auto& point : out.points_) {
      if (kind != 0 && !take(text, value))
        return damaged();
      point[c] = value;
    }
  }
  return out;
}

}  // namespace billow
