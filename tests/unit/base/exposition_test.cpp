// The text of /metrics in its two formats, and exemplars.
#include "base/exposition.h"

#include <gtest/gtest.h>

namespace billow {
namespace {

const WallTime noon{1'700'000'000'000'000'000};

TEST(Exposition, WritesFamiliesInTheOrderOfTheirFirstSample) {
  Exposition out;
  out.add("b_total", "counter", "B.", metric_label("x", "a\"b\\\n"), 1);
  out.add("a", "gauge", "A.", "", 0.5);
  out.add("b_total", "counter", "B.", metric_label("x", "c"), 2);
  EXPECT_EQ(out.text(),
            "# HELP b_total B.\n# TYPE b_total counter\n"
            "b_total{x=\"a\\\"b\\\\\\n\"} 1\nb_total{x=\"c\"} 2\n"
            "# HELP a A.\n# TYPE a gauge\na 0.5\n");
}

TEST(Exposition, OpenMetricsNamesCountersWithoutTotalAndHasAnEnd) {
  Exposition out(MetricsFormat::openmetrics);
  out.add("b_total", "counter", "B.", "", 1);
  out.add("DCGM_ENERGY", "counter", "E.", "", 2);
  EXPECT_EQ(out.text(),
            "# HELP b B.\n# TYPE b counter\nb_total 1\n"
            "# HELP DCGM_ENERGY E.\n# TYPE DCGM_ENERGY unknown\nDCGM_ENERGY 2\n# EOF\n");
}

TEST(Exposition, ExemplarsStandAtTheirBucketsInOpenMetricsOnly) {
  Histogram h;
  h.add(milliseconds(2), "slow\"er", noon);
  h.add(hours(48), "for-ever", noon);
  h.add(seconds(1));
  const auto text = [&](MetricsFormat format, const char* exemplar) {
    Exposition out(format);
    out.add("t_seconds", "T.", h, metric_label("endpoint", "chat"), exemplar);
    return out.text();
  };
  const std::string open = text(MetricsFormat::openmetrics, "trace_id");
  for (const char* line :
       {"t_seconds_bucket{endpoint=\"chat\",le=\"0.001\"} 0\n",
        "t_seconds_bucket{endpoint=\"chat\",le=\"0.005\"} 1 # {trace_id=\"slow\\\"er\"} 0.002 "
        "1700000000.000\n",
        "t_seconds_bucket{endpoint=\"chat\",le=\"1.0\"} 2\n",
        "t_seconds_bucket{endpoint=\"chat\",le=\"+Inf\"} 3 # {trace_id=\"for-ever\"} 172800 "
        "1700000000.000\n",
        "t_seconds_sum{endpoint=\"chat\"} 172801.002\n", "t_seconds_count{endpoint=\"chat\"} 3\n"})
    EXPECT_NE(open.find(line), std::string::npos) << line << "in\n" << open;
  EXPECT_EQ(text(MetricsFormat::openmetrics, nullptr).find("# {"), std::string::npos);
  EXPECT_EQ(text(MetricsFormat::prometheus, "trace_id").find("# {"), std::string::npos);
}

TEST(Exposition, AnExemplarThatIsTooLongIsLeftOut) {
  Histogram h;
  h.add(seconds(1), std::string(200, 'x'), noon);
  Exposition out(MetricsFormat::openmetrics);
  out.add("t_seconds", "T.", h, {}, "request_id");
  EXPECT_EQ(out.text().find("# {"), std::string::npos);
  EXPECT_NE(out.text().find("t_seconds_bucket{le=\"1.0\"} 1\n"), std::string::npos);
}

TEST(Histogram, TheSumOfTwoHasTheNewestExemplars) {
  Histogram a, b, sum;
  a.add(seconds(1), "old", noon);
  b.add(seconds(1), "new", noon + seconds(1));
  b.add(seconds(3));
  sum.add(a);
  sum.add(b);
  sum.add(a);
  EXPECT_EQ(sum.count(), 4u);
  EXPECT_DOUBLE_EQ(sum.sum, 6);
  ASSERT_NE(sum.exemplar(8), nullptr);
  EXPECT_EQ(sum.exemplar(8)->of, "new");
  EXPECT_EQ(sum.exemplar(9), nullptr) << "nothing with a name took 3 s";
}

TEST(Histogram, ALongOrShortOneFromElsewhereIsHarmless) {
  Histogram strange, sum;
  strange.counts = {1, 2};
  strange.exemplars.resize(40, {.of = "x", .seconds = 1, .at = noon});
  sum.add(strange);
  EXPECT_EQ(sum.count(), 3u);
  EXPECT_EQ(sum.exemplars.size(), Histogram::buckets);
  strange.counts.resize(100, 1);
  sum.add(strange);
  EXPECT_EQ(sum.counts.size(), Histogram::buckets);
}

}  // namespace
}  // namespace billow
