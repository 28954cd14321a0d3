#include "base/exposition.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

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

// ---- protobuf: messages io.prometheus.client.MetricFamily, each behind its length. The numbers of
// the fields are those of prometheus/client_model, metrics.proto.

enum class Wire : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2 };

class Message {
 public:
  Message& bytes(unsigned field, std::string_view value) {
    key(field, Wire::bytes);
    varint(value.size());
    out_ += value;
    return *this;
  }
  Message& number(unsigned field, std::uint64_t value) {
    key(field, Wire::varint);
    varint(value);
    return *this;
  }
  Message& zigzag(unsigned field, std::int64_t value) { return number(field, zigzagged(value)); }
  Message& real(unsigned field, double value) {
    key(field, Wire::fixed64);
    const auto bits = std::bit_cast<std::uint64_t>(value);
    for (unsigned i = 0; i < 8; ++i)
      out_ += static_cast<char>(bits >> (8 * i) & 0xFF);
    return *this;
  }
  Message& message(unsigned field, const Message& inner) { return bytes(field, inner.out_); }
  Message& packed_zigzag(unsigned field, const std::vector<std::int64_t>& values) {
    Message all;
    for (const std::int64_t value : values)
      all.varint(zigzagged(value));
    return bytes(field, all.out_);
  }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7)
      out_ += static_cast<char>((value & 0x7F) | 0x80);
    out_ += static_cast<char>(value);
  }
  std::string& text() { return out_; }

 private:
  static std::uint64_t zigzagged(std::int64_t value) {
    return static_cast<std::uint64_t>(value) << 1 ^ static_cast<std::uint64_t>(value >> 63);
  }
  void key(unsigned field, Wire wire) { varint(field << 3 | static_cast<unsigned>(wire)); }
  std::string out_;
};

Message label(std::string_view name, std::string_view value) {
  Message out;
  out.bytes(1, name).bytes(2, value);
  return out;
}

// name="value",… with \\, \" and \n inside of values.
void add_labels(Message& metric, std::string_view labels) {
  while (!labels.empty()) {
    const auto equals = labels.find("=\"");
    if (equals == std::string_view::npos)
      return;
    const std::string_view name = labels.substr(0, equals);
    std::string value;
    std::size_t at = equals + 2;
    for (; at < labels.size() && labels[at] != '"'; ++at) {
      if (labels[at] != '\\' || at + 1 == labels.size())
        value += labels[at];
      else
        value += labels[++at] == 'n' ? '\n' : labels[at];
    }
    metric.message(1, label(name, value));
    labels.remove_prefix(std::min(at + 1, labels.size()));
    if (labels.starts_with(','))
      labels.remove_prefix(1);
  }
}

unsigned type_number(std::string_view type) {
  return type == "counter" ? 0 : type == "gauge" ? 1 : type == "histogram" ? 4 : 3;
}

// As one span from the first to the last bucket: latencies lie close together.
void add_native(Message& out, const NativeBuckets& native) {
  constexpr double zero_threshold = 0x1p-128;
  out.zigzag(5, NativeBuckets::schema).real(6, zero_threshold);
  Message span;
  span.zigzag(1, native.from).number(2, native.counts.size());
  out.message(12, span);
  std::vector<std::int64_t> deltas;
  std::int64_t before = 0;
  for (const std::uint64_t count : native.counts) {
    deltas.push_back(static_cast<std::int64_t>(count) - before);
    before = static_cast<std::int64_t>(count);
  }
  out.packed_zigzag(13, deltas);
}

Message exemplar_message(const Exemplar& one, const char* name) {
  constexpr std::int64_t second = 1'000'000'000;
  Message at, out;
  at.number(1, static_cast<std::uint64_t>(one.at.ns / second));
  at.number(2, static_cast<std::uint64_t>(one.at.ns % second));
  out.message(1, label(name, one.of)).real(2, one.seconds).message(3, at);
  return out;
}

// A Metric as the member of its family.
std::string member(const Message& metric) {
  Message out;
  out.message(4, metric);
  return std::move(out.text());
}

std::string message_of(std::string_view type, std::string_view labels, double value) {
  constexpr unsigned gauge = 2, counter = 3, untyped = 5;
  Message metric, number;
  add_labels(metric, labels);
  number.real(1, value);
  metric.message(type == "counter" ? counter : type == "gauge" ? gauge : untyped, number);
  return member(metric);
}

std::string message_of(const Histogram& histogram,
                       std::string_view labels,
                       const char* exemplar,
                       const NativeBuckets* native) {
  Message metric, out;
  add_labels(metric, labels);
  out.number(1, histogram.count()).real(2, histogram.sum);
  for (std::size_t i = 0; i < Histogram::buckets; ++i) {
    Message bucket;
    bucket.number(1, histogram.up_to(i))
        .real(2, i < Histogram::bounds.size() ? Histogram::bounds[i]
                                              : std::numeric_limits<double>::infinity());
    if (const Exemplar* one = histogram.exemplar(i);
        one && exemplar && one->of.size() <= exemplar_bytes_max)
      bucket.message(3, exemplar_message(*one, exemplar));
    out.message(3, bucket);
  }
  if (native && histogram.count() > 0 && native->count() == histogram.count())
    add_native(out, *native);
  metric.message(7, out);
  return member(metric);
}

std::string family_message(std::string_view name,
                           std::string_view type,
                           std::string_view help,
                           std::string_view samples) {
  Message out, length;
  out.bytes(1, name).bytes(2, help).number(3, type_number(type));
  length.varint(out.text().size() + samples.size());
  return length.text() + out.text() + std::string(samples);
}

}  // namespace

void NativeBuckets::add(Duration took) {
  const double s = took.seconds();
  const double number = s > 0 ? std::ceil(std::log2(s) * (1 << schema)) : number_min;
  ++at(static_cast<std::int64_t>(number));
}

void NativeBuckets::add(const NativeBuckets& other) {
  for (std::size_t i = 0; i < other.counts.size(); ++i)
    if (other.counts[i] > 0)
      at(other.from + static_cast<std::int64_t>(i)) += other.counts[i];
}

std::uint64_t NativeBuckets::count() const {
  std::uint64_t n = 0;
  for (const std::uint64_t each : counts)
    n += each;
  return n;
}

// The list grows to this bucket at either end.
std::uint64_t& NativeBuckets::at(std::int64_t wanted) {
  const auto number =
      static_cast<std::int32_t>(std::clamp<std::int64_t>(wanted, number_min, number_max));
  if (counts.empty())
    from = number;
  if (number < from) {
    counts.insert(counts.begin(), static_cast<std::size_t>(from - number), 0);
    from = number;
  }
  const auto place = static_cast<std::size_t>(number - from);
  if (place >= counts.size())
    counts.resize(place + 1);
  return counts[place];
}

Exposition::Family& Exposition::family(const char* name, const char* type, const char* help) {
  for (Family& f : families_)
    if (f.name == name || std::strcmp(f.name, name) == 0)
      return f;
  return families_.emplace_back(Family{name, type, help, {}});
}

void Exposition::add(
    const char* name, const char* type, const char* help, std::string_view labels, double value) {
  std::string& out = family(name, type, help).samples;
  if (format_ == MetricsFormat::protobuf) {
    out += message_of(type, labels, value);
    return;
  }
  out += name;
  if (!labels.empty())
    out.append("{").append(labels).append("}");
  append_format(out, " {}\n", value);
}

void Exposition::add(const char* name,
                     const char* help,
                     const Histogram& histogram,
                     std::string_view labels,
                     const char* exemplar,
                     const NativeBuckets* native) {
  std::string& out = family(name, "histogram", help).samples;
  if (format_ == MetricsFormat::protobuf) {
    out += message_of(histogram, labels, exemplar, native);
    return;
  }
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
    if (format_ == MetricsFormat::protobuf) {
      out += family_message(f.name, f.type, f.help, f.samples);
      continue;
    }
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
