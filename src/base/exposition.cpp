#include "base/exposition.h"

#include <cstring>

#include <fmt/format.h>

#include "base/append_format.h"

namespace billow {
namespace {

// OpenMetrics allows 128 characters for the label and its value together.
constexpr std::size_t exemplar_bytes_max = 100;

// 1.0 and not 1, as Prometheus stores it: the series are the same in both formats.
std::string bound_text(double bound) {
  std::string out = fmt::format("{}", bound);
  if (out.find('.') == std::string::npos)
    out += ".0";
  return out;
}

}  // namespace

Exposition::Family& Exposition::family(const char* name, const char* type, const char* help) {
  for (Family& f : families_)
    if (f.name == name || std::strcmp(f.name, name) == 0)
      return f;
  return families_.emplace_back(Family{name, type, help, {}});
}

void Exposition::add(
    const char* name, const char* type, const char* help, std::string_view labels, double value) {
  std::string& out = family(name, type, help).samples;
  out += name;
  if (!labels.empty())
    out.append("{").append(labels).append("}");
  append_format(out, " {}\n", value);
}

void Exposition::add(const char* name,
                     const char* help,
                     const Histogram& histogram,
                     std::string_view labels,
                     const char* exemplar) {
  std::string& out = family(name, "histogram", help).samples;
  const std::string_view comma = labels.empty() ? "" : ",";
  for (std::size_t i = 0; i < Histogram::buckets; ++i) {
    append_format(out, "{}_bucket{{{}{}le=\"{}\"}} {}", name, labels, comma,
                  i < Histogram::bounds.size() ? bound_text(Histogram::bounds[i]) : "+Inf",
                  histogram.up_to(i));
    if (const Exemplar* one = histogram.exemplar(i); one && exemplar &&
                                                     format_ == MetricsFormat::openmetrics &&
                                                     one->of.size() <= exemplar_bytes_max)
      append_format(out, " # {{{}}} {} {:.3f}", metric_label(exemplar, one->of), one->seconds,
                    static_cast<double>(one->at.ns) / 1e9);
    out += '\n';
  }
  const std::string all = labels.empty() ? std::string() : fmt::format("{{{}}}", labels);
  append_format(out, "{0}_sum{1} {2}\n{0}_count{1} {3}\n", name, all, histogram.sum,
                histogram.count());
}

// In OpenMetrics a counter's family has its name without _total. The counters of dcgm-exporter have
// no such end, and are of unknown type there.
void Exposition::append_head(std::string& out, const Family& f) const {
  std::string_view name = f.name, type = f.type;
  if (format_ == MetricsFormat::openmetrics && type == "counter") {
    constexpr std::string_view total = "_total";
    if (name.ends_with(total))
      name.remove_suffix(total.size());
    else
      type = "unknown";
  }
  append_format(out, "# HELP {} {}\n# TYPE {} {}\n", name, f.help, name, type);
}

std::string Exposition::text() const {
  std::string out;
  std::size_t bytes = 0;
  for (const Family& f : families_)
    bytes += f.samples.size() + 160;
  out.reserve(bytes);
  for (const Family& f : families_) {
    append_head(out, f);
    out += f.samples;
  }
  if (format_ == MetricsFormat::openmetrics)
    out += "# EOF\n";
  return out;
}

std::string metric_label(std::string_view name, std::string_view value) {
  std::string out(name);
  out += "=\"";
  for (const char c : value) {
    if (c == '\\' || c == '"')
      out += '\\';
    if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out + '"';
}

}  // namespace billow
