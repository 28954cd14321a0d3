// Metrics as protobuf messages, byte for byte and taken apart again. That a real Prometheus reads
// them is shown in tests/e2e/daily/prometheus_test.py.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <map>

#include "base/exposition.h"

namespace billow {
namespace {

struct Value {
  std::uint64_t number = 0;
  std::string bytes;
};
using Fields = std::multimap<unsigned, Value>;

std::uint64_t take_varint(std::string_view& from) {
  std::uint64_t out = 0;
  for (unsigned shift = 0; !from.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(from.front());
    from.remove_prefix(1);
    out |= std::uint64_t{byte & 0x7FU} << shift;
    if (byte < 0x80)
      break;
  }
  return out;
}
Fields fields(std::string_view message) {
  Fields out;
  while (!message.empty()) {
    const std::uint64_t key = take_varint(message);
    Value value;
    if ((key & 7) == 0) {
      value.number = take_varint(message);
    } else if ((key & 7) == 1) {
      for (unsigned i = 0; i < 8; ++i)
        value.number |= std::uint64_t{static_cast<unsigned char>(message[i])} << (8 * i);
      message.remove_prefix(8);
    } else {
      const std::uint64_t size = take_varint(message);
      value.bytes = message.substr(0, size);
      message.remove_prefix(size);
    }
    out.emplace(static_cast<unsigned>(key >> 3), std::move(value));
  }
  return out;
}
std::string bytes(const Fields& of, unsigned field) {
  const auto found = of.find(field);
  return found == of.end() ? "(none)" : found->second.bytes;
}
std::uint64_t number(const Fields& of, unsigned field) {
  const auto found = of.find(field);
  return found == of.end() ? 99999 : found->second.number;
}
double real(const Fields& of, unsigned field) {
  return std::bit_cast<double>(number(of, field));
}
std::int64_t signed_of(std::uint64_t zigzag) {
  return static_cast<std::int64_t>(zigzag >> 1) ^ -static_cast<std::int64_t>(zigzag & 1);
}

// The only metric of the only family.
Fields metric_in(const Exposition& out) {
  const std::string text = out.text();
  std::string_view rest = text;
  const std::uint64_t size = take_varint(rest);
  EXPECT_EQ(size, rest.size());
  return fields(bytes(fields(rest), 4));
}
// Durations in both kinds of buckets.
struct Both {
  Histogram histogram;
  NativeBuckets native;
  void add(Duration took) {
    histogram.add(took);
    native.add(took);
  }
  void add(const Both& other) {
    histogram.add(other.histogram);
    native.add(other.native);
  }
};
Fields histogram_in(const Both& both, const char* exemplar = nullptr) {
  Exposition out(MetricsFormat::protobuf);
  out.add("latency", "help", both.histogram, "", exemplar, &both.native);
  return fields(bytes(metric_in(out), 7));
}

TEST(MetricProtobuf, AGaugeByteForByte) {
  Exposition out(MetricsFormat::protobuf);
  out.add("a", "gauge", "b", "c=\"d\"", 1);
  const std::string label = std::string("\x0a\x06") + "\x0a\x01" + "c" + "\x12\x01" + "d";
  const std::string value = std::string("\x12\x09\x09\0\0\0\0\0\0\xf0\x3f", 11);
  const std::string metric = label + value;
  const std::string family = std::string("\x0a\x01") + "a" + "\x12\x01" + "b" + "\x18\x01" +
                             "\x22" + static_cast<char>(metric.size()) + metric;
  EXPECT_EQ(out.text(), static_cast<char>(family.size()) + family);
}

TEST(MetricProtobuf, LabelsAreThoseOfTheTextFormat) {
  const std::string odd = "a \"b\"\\,\nc=";
  Exposition out(MetricsFormat::protobuf);
  out.add("a_total", "counter", "", metric_label("x", odd) + "," + metric_label("y", ""), 3);
  const Fields metric = metric_in(out);
  ASSERT_EQ(metric.count(1), 2u);
  auto at = metric.find(1);
  EXPECT_EQ(bytes(fields(at->second.bytes), 2), odd);
  EXPECT_EQ(bytes(fields((++at)->second.bytes), 1), "y");
  EXPECT_EQ(bytes(fields(at->second.bytes), 2), "");
  EXPECT_EQ(real(fields(bytes(metric, 3)), 1), 3);
}

// The buckets of the messages, with their bounds as Prometheus computes them.
std::map<std::int64_t, std::uint64_t> native_buckets(const Both& both) {
  const Fields native = histogram_in(both);
  std::map<std::int64_t, std::uint64_t> out;
  if (!native.contains(12))
    return out;
  EXPECT_EQ(signed_of(number(native, 5)), NativeBuckets::schema);
  EXPECT_GT(real(native, 6), 0);
  const Fields span = fields(bytes(native, 12));
  std::int64_t at = signed_of(number(span, 1)), count = 0;
  const std::string packed = bytes(native, 13);
  std::string_view rest = packed;
  for (std::uint64_t i = 0; i < number(span, 2); ++i, ++at) {
    count += signed_of(take_varint(rest));
    if (count > 0)
      out[at] = static_cast<std::uint64_t>(count);
  }
  EXPECT_TRUE(rest.empty());
  return out;
}

TEST(MetricProtobuf, NativeBucketsHoldEachDurationWithinNinePercent) {
  for (const double seconds_taken : {0.00002, 0.0123, 0.25, 0.251, 1.0, 7.5, 3600.0}) {
    Both one;
    one.add(nanoseconds(std::llround(seconds_taken * 1e9)));
    const auto buckets = native_buckets(one);
    ASSERT_EQ(buckets.size(), 1u) << seconds_taken;
    const double upper = std::exp2(static_cast<double>(buckets.begin()->first) / 8);
    EXPECT_LE(seconds_taken, upper * 1.000001);
    EXPECT_GT(seconds_taken, upper / 1.0906);
  }
}

TEST(MetricProtobuf, NativeBucketsOfSeveralGatewaysAddUp) {
  Both a, b;
  for (int i = 1; i <= 100; ++i)
    (i % 2 ? a : b).add(milliseconds(i));
  b.add(hours(24 * 365));  // beyond the last bucket
  b.add(Duration{});
  Both sum;
  sum.add(a);
  sum.add(b);
  const auto buckets = native_buckets(sum);
  std::uint64_t all = 0;
  for (const auto& [number, count] : buckets)
    all += count;
  EXPECT_EQ(all, 102u);
  EXPECT_EQ(sum.histogram.count(), 102u);
  EXPECT_EQ(buckets.begin()->first, NativeBuckets::number_min);
  EXPECT_EQ(buckets.rbegin()->first, NativeBuckets::number_max);
}

TEST(MetricProtobuf, WithoutAllNativeCountsThereAreTheOthers) {
  Both old;  // as a gateway of an older version sends it
  old.histogram.add(milliseconds(3), "trace", WallTime{1'500'000'000});
  Both sum;
  sum.add(milliseconds(5));
  sum.add(old);
  EXPECT_TRUE(native_buckets(sum).empty());
  const Fields histogram = histogram_in(sum, "trace_id");
  EXPECT_EQ(number(histogram, 1), 2u);
  EXPECT_NEAR(real(histogram, 2), 0.008, 1e-9);
  ASSERT_EQ(histogram.count(3), Histogram::buckets);
  std::size_t exemplars = 0;
  for (auto at = histogram.lower_bound(3); at != histogram.upper_bound(3); ++at) {
    const Fields bucket = fields(at->second.bytes);
    if (!bucket.contains(3))
      continue;
    ++exemplars;
    EXPECT_EQ(real(bucket, 2), 0.005);
    const Fields one = fields(bytes(bucket, 3));
    EXPECT_EQ(bytes(fields(bytes(one, 1)), 2), "trace");
    EXPECT_EQ(number(fields(bytes(one, 3)), 1), 1u);
    EXPECT_EQ(number(fields(bytes(one, 3)), 2), 500'000'000u);
  }
  EXPECT_EQ(exemplars, 1u);
}

}  // namespace
}  // namespace billow
