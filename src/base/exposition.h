// Metrics in the text format that Prometheus reads (0.0.4), or as OpenMetrics 1.0, which has
// exemplars: a bucket of a histogram names one of the traces, jobs or requests it counts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/histogram.h"

namespace billow {

enum class MetricsFormat { prometheus, openmetrics };

class Exposition {
 public:
  explicit Exposition(MetricsFormat format = MetricsFormat::prometheus) : format_(format) {}
  // Families are written in the order of their first sample. `labels` is written as given: make it
  // with metric_label().
  void add(
      const char* name, const char* type, const char* help, std::string_view labels, double value);
  // `exemplar`: the label for the names in the histogram, as trace_id; null: without them.
  void add(const char* name,
           const char* help,
           const Histogram& histogram,
           std::string_view labels = {},
           const char* exemplar = nullptr);
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
