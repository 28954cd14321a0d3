// Metrics in the text format that Prometheus reads (0.0.4).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/histogram.h"

namespace billow {

class Exposition {
 public:
  // Families are written in the order of their first sample. `labels` is written as given: make it
  // with metric_label().
  void add(
      const char* name, const char* type, const char* help, std::string_view labels, double value);
  void add(const char* name, const char* help, const Histogram& histogram);
  std::string text() const;

 private:
  struct Family {
    const char* name;
    const char* type;
    const char* help;
    std::string samples;
  };
  Family& family(const char* name, const char* type, const char* help);
  std::vector<Family> families_;
};

// name="value", escaped as the format asks.
std::string metric_label(std::string_view name, std::string_view value);

}  // namespace billow
