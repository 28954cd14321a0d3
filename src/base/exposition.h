// Metrics in the text format that Prometheus reads (0.0.4), or as OpenMetrics 1.0, which has
// exemplars: a bucket of a histogram names one of the traces, jobs or requests it counts. Or as
// protobuf messages, which have native histograms too.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/histogram.h"

namespace billow {

// Counts of durations in the buckets of Prometheus's native histograms: that of number i ends at
// 2^(i/8) seconds and begins where the one before it ends, so each is 9 % wide. From a microsecond
// to a day and a half.
struct NativeBuckets {
  static constexpr std::int32_t schema = 3;  // 2^3 buckets for each power of two
  static constexpr std::int32_t number_min = -160, number_max = 136;

  std::int32_t from = 0;  // the number of the first
  std::vector<std::uint64_t> counts;

  void add(Duration took);
  void add(const NativeBuckets& other);
  std::uint64_t count() const;
  bool operator==(const NativeBuckets&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("from", s.from);
    v("counts", s.counts);
  }

 private:
  std::uint64_t& at(std::int64_t number);
};

enum class MetricsFormat { prometheus, openmetrics, protobuf };

class Exposition {
 public:
  explicit Exposition(MetricsFormat format = MetricsFormat::prometheus) : format_(format) {}
  // Families are written in the order of their first sample. `labels` is written as given: make it
  // with metric_label().
  void add(
      const char* name, const char* type, const char* help, std::string_view labels, double value);
  // `exemplar`: the label for the names in the histogram, as trace_id; null: without them.
  // `native`: the same durations, for the format that has such buckets. They are left out unless
  // they are complete: gateways of an older version do not send them.
  void add(const char* name,
           const char* help,
           const Histogram& histogram,
           std::string_view labels = {},
           const char* exemplar = nullptr,
           const NativeBuckets* native = nullptr);
  std::string text() const;

 private:
  struct Family {
    const char* name;
    const char* type;
    const char* help;
    std::string samples;
  };
  Family& family(const char* name, const char* type, const char* help);
  void append_head(std::string& out, const Family& family) const;
  MetricsFormat format_;
  std::vector<Family> families_;
};

// name="value", escaped as the format asks.
std::string metric_label(std::string_view name, std::string_view value);

}  // namespace billow
