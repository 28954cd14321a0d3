#include "base/exposition.h"

#include <cstring>

#include <fmt/format.h>

#include "base/append_format.h"

namespace billow {

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

void Exposition::add(const char* name, const char* help, const Histogram& histogram) {
  std::string& out = family(name, "histogram", help).samples;
  for (std::size_t i = 0; i < Histogram::bounds.size(); ++i)
    append_format(out, "{}_bucket{{le=\"{}\"}} {}\n", name, Histogram::bounds[i],
                  histogram.up_to(i));
  append_format(out, "{0}_bucket{{le=\"+Inf\"}} {1}\n{0}_sum {2}\n{0}_count {1}\n", name,
                histogram.count(), histogram.sum());
}

std::string Exposition::text() const {
  std::string out;
  std::size_t bytes = 0;
  for (const Family& f : families_)
    bytes += f.samples.size() + 160;
  out.reserve(bytes);
  for (const Family& f : families_) {
    append_format(out, "# HELP {} {}\n# TYPE {} {}\n", f.name, f.help, f.name, f.type);
    out += f.samples;
  }
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
