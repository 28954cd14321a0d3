// Load tests: arrivals, streamed answers as times, and what is said against a service level.
#include "advise/load/loadtest.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "advise/calibration.h"
#include "advise/measurements.h"
#include "base/file.h"

namespace billow::advise {
namespace {

TEST(Arrivals, ComeAtTheRateAskedAndTheSameForTheSameSeed) {
  auto a = random_arrivals(20, 100, 512, 128, 7), b = random_arrivals(20, 100, 512, 128, 7),
       c = random_arrivals(20, 100, 512, 128, 8);
  EXPECT_NEAR(static_cast<double>(a.size()), 2000, 200);
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(a[17].at_s, b[17].at_s);
  EXPECT_NE(a[17].at_s, c[17].at_s);
  for (std::size_t i = 1; i < a.size(); ++i)
    EXPECT_LE(a[i - 1].at_s, a[i].at_s);
  EXPECT_EQ(random_arrivals(0.01, 1, 1, 1, 1).size(), 1u) << "a test sends something";
}

TEST(Arrivals, ATraceKeepsItsTimesAndLengths) {
  auto t = trace_arrivals(
      "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.5,374,44\n2023-11-16 "
      "18:15:50.5,396,109\n2023-11-16 18:25:46.5,10,10\n",
      60, 2);
  ASSERT_TRUE(t) << t.error().message;
  ASSERT_EQ(t->size(), 2u);
  EXPECT_NEAR((*t)[1].at_s, 2, 1e-9);
  EXPECT_EQ((*t)[1].input, 396);
  EXPECT_EQ((*t)[1].output, 109);
  EXPECT_FALSE(trace_arrivals("timestamp,input,output\nyesterday,1,1\n", 60, 1));
  EXPECT_FALSE(trace_arrivals("timestamp,input,output\n5,1,1\n3,1,1\n", 60, 1)) << "not in order";
  EXPECT_FALSE(trace_arrivals("", 60, 1));
  const auto wrong = trace_arrivals("# exported\ntimestamp,input,output\n\n5,many,1\n", 60, 1);
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().message.find("line 4 of the trace: \"many\""), std::string::npos)
      << wrong.error().message;
}

TEST(AnswerStream, CountsTokensHoweverTheBytesAreCut) {
  std::string body =
      "data: {\"choices\":[{\"text\":\"a\"}]}\n\ndata: {\"choices\":[{\"text\":\"b\"}]}\n\ndata: "
      "{\"choices\":[{\"delta\":{\"content\":\"c\"}}]}\r\n\r\ndata: [DONE]\n\n";
  for (std::size_t piece : {1u, 3u, 7u, 1000u}) {
    AnswerStream s;
    double t = 10;
    for (std::size_t at = 0; at < body.size(); at += piece, t += 0.001)
      s.feed(std::string_view(body).substr(at, piece), t);
    s.finish(t);
    EXPECT_EQ(s.tokens(), 3) << piece;
    EXPECT_TRUE(s.streamed());
    EXPECT_GE(s.first_s(), 10);
    EXPECT_GE(s.last_s(), s.first_s());
    EXPECT_TRUE(s.error().empty());
  }
}

TEST(AnswerStream, UsageSaysBetterAndErrorsAreSeen) {
  AnswerStream s;
  s.feed("data: {\"choices\":[{\"text\":\"ab\"}]}\n\n", 1);
  s.feed("data: {\"choices\":[],\"usage\":{\"completion_tokens\":9}}\n\n", 2);
  s.finish(2);
  EXPECT_EQ(s.tokens(), 9);
  EXPECT_EQ(s.last_s(), 1) << "a count is no token";
  AnswerStream broken;
  broken.feed("data: {\"error\":{\"message\":\"out of memory\"}}\n\n", 1);
  broken.finish(1);
  EXPECT_EQ(broken.error(), "out of memory");
  AnswerStream plain;
  plain.feed("{\"choices\":[{\"text\":\"hello\"}],", 1);
  plain.feed("\"usage\":{\"completion_tokens\":5}}", 1.5);
  plain.finish(1.5);
  EXPECT_EQ(plain.tokens(), 5);
  EXPECT_FALSE(plain.streamed());
  EXPECT_EQ(plain.first_s(), 1);
}

TEST(LoadReport, JudgesByTheNinetyFifthPercentile) {
  std::vector<Answered> answers;
  for (int i = 0; i < 100; ++i) {
    Answered a;
    a.due_s = a.sent_s = i;
    a.first_s = i + (i < 90 ? 0.1 : 0.9);
    a.tokens = 11;
    a.last_s = a.end_s = a.first_s + 0.2;  // 20 ms a token
    a.streamed = true;
    a.input = 100;
    answers.push_back(a);
  }
  auto r = summarise(answers, {.ttft_ms_max = 500, .tokens_per_s_min = 40});
  EXPECT_NEAR(r.ttft_ms.p50, 100, 1e-6);
  EXPECT_NEAR(r.ttft_ms.p95, 900, 1e-6);
  ASSERT_TRUE(r.tpot_ms);
  EXPECT_NEAR(r.tpot_ms->p95, 20, 1e-6);
  ASSERT_EQ(r.missed.size(), 1u) << "the tenth that waited";
  EXPECT_TRUE(summarise(answers, {.ttft_ms_max = 1000, .tokens_per_s_min = 40}).meets());
  EXPECT_FALSE(summarise(answers, {.ttft_ms_max = 1000, .tokens_per_s_min = 60}).meets());
  EXPECT_NEAR(r.concurrency, (90 * 0.3 + 10 * 1.1) / r.seconds, 1e-9);
  for (int i = 0; i < 5; ++i)
    answers[static_cast<std::size_t>(i)].error = "HTTP 503";
  auto failed = summarise(answers, {});
  EXPECT_FALSE(failed.meets());
  EXPECT_EQ(failed.errors.at(0).second, 5);
  EXPECT_EQ(summarise({}, {}).requests, 0);
}

TEST(Measurements, AreKeptReadAndBendTheCalibration) {
  char made[] = "/tmp/billow-measured-XXXXXX";
  ASSERT_NE(::mkdtemp(made), nullptr);
  std::string dir = made;
  auto catalogue = Catalogue::embedded();
  ServingMeasurement m{.model = "7B",
                       .gpu = "L4",
                       .engine = "vllm",
                       .version = "0.9, \"nightly\"",
                       .precision = "bf16",
                       .tensor = 1,
                       .concurrency = 4.4,
                       .input = 512,
                       .output = 128,
                       .ttft_ms = 300,
                       .tpot_ms = 200,
                       .measured_at = "2026-11-15T06:00:00Z"};
  ASSERT_TRUE(append_measurement(dir, m));
  ASSERT_TRUE(append_measurement(dir, m));
  auto read = read_measurements(dir, {}, catalogue);
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(read->rows.size(), 2u);
  EXPECT_TRUE(read->left_out.empty());
  EXPECT_NEAR(*read->rows[0].tpot_ms, 200, 1e-6);
  auto before = Calibration::embedded().predict(read->rows[0]),
       after = Calibration::embedded().with_local(read->rows).predict(read->rows[0]);
  ASSERT_TRUE(before && after);
  EXPECT_LT(std::fabs(std::log(after->tpot_ms.value / 200)),
            std::fabs(std::log(before->tpot_ms.value / 200)));
  EXPECT_EQ(after->kind, Kind::measured);
  auto text = *read_file(measurements_path(dir));
  ASSERT_TRUE(write_file_atomic(measurements_path(dir),
                                text + "x,vllm,,no such model,L4,,agg,1,1,1,1,1,1,\n"));
  auto mended = read_measurements(dir, {}, catalogue);
  ASSERT_TRUE(mended);
  EXPECT_EQ(mended->rows.size(), 2u);
  EXPECT_EQ(mended->left_out.size(), 1u);
  EXPECT_TRUE(remove_tree(dir));
}

}  // namespace
}  // namespace billow::advise
