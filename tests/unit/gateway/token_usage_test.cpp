// Tokens of requests: what answers report, and what is assumed where they do not.
#include "gateway/pure/token_usage.h"

#include <gtest/gtest.h>

#include <string>

namespace billow::gateway {
namespace {

TEST(TokenUsage, IsReadWhereAnswersReportIt) {
  const auto u = usage_of(
      "data: {\"choices\":[]}\n\n"
      "data: {\"usage\":{\"prompt_tokens\": 12,\"completion_tokens\":345,\"total_tokens\":357}}\n\n"
      "data: [DONE]\n\n",
      true);
  EXPECT_EQ(u.in, 12u);
  EXPECT_EQ(u.out, 345u);
  EXPECT_FALSE(u.cached);
  EXPECT_FALSE(usage_of("nothing", false).knows_out);
  EXPECT_EQ(usage_of(R"({"usage":{"prompt_tokens":12,"completion_tokens":3,)"
                     R"("prompt_tokens_details":{"cached_tokens":0}}})",
                     false)
                .cached,
            0u);
}

TEST(TokenUsage, WhatAClientHasSentDoesNotCount) {
  const std::string own = R"("usage":{"input_tokens":1000,"output_tokens":1000})";
  const std::string echo = R"("metadata":{"usage":{"input_tokens":0,"output_tokens":0}})";
  for (const std::string& answer :
       {"{" + own + "," + echo + "}", "{" + echo + "," + own + "}",
        "{" + own + R"(,"text":"\\\"usage\":{\"output_tokens\":0}}","user":"}{\"usage\""})",
        R"("cut text","id":1}],)" + own + "," + echo + " } \n"}) {
    EXPECT_EQ(usage_of(answer, false).out, 1000u) << answer;
    EXPECT_EQ(usage_of("data: " + answer + "\n\n", true).out, 1000u) << answer;
  }
  EXPECT_FALSE(usage_of("{" + echo + "}", false).knows_out);
  EXPECT_FALSE(usage_of("data: {" + echo + "}\n", true).knows_out);
  const std::string inner = "{\"type\":\"x\",\"response\":{" + own + "," + echo + "}}";
  EXPECT_EQ(usage_of("data: " + inner + "\n\n", true).out, 1000u);
  EXPECT_FALSE(usage_of(inner, false).knows_out);
  EXPECT_EQ(usage_of("xt\"}]," + own + "," + echo + "}}\n\n", true).out, 1000u)
      << "the beginning of the event is missing";
  for (const char* broken : {"", "}", "\"}", "{\"usage\":}", "{\"usage\":{}", "]}{\"usage\":{}}",
                             "{\"usage\":null}", "\\\"usage\":{}}"})
    EXPECT_FALSE(usage_of(broken, false).knows_out) << broken;
}

TEST(TokenUsage, IsEstimatedWhereAnswersDoNotReportIt) {
  const AnswerForm text = AnswerForm::of({{"Content-Type", "application/json"}});
  EXPECT_EQ(estimated({}, text, 400, 800).in, 100u);
  EXPECT_EQ(estimated({}, text, 400, 800).out, 200u);
  TokenUsage embedding;
  embedding.in = 7;
  embedding.knows_in = true;
  EXPECT_EQ(estimated(embedding, text, 400, 800).in, 7u);
  EXPECT_EQ(estimated(embedding, text, 400, 800).out, 0u) << "it generates none";
  const AnswerForm packed =
      AnswerForm::of({{"Content-Type", "application/json"}, {"Content-Encoding", "gzip"}});
  EXPECT_EQ(estimated({}, packed, 0, 800).out, 800u);
  EXPECT_EQ(estimated({}, AnswerForm::of({{"Content-Type", "audio/wav"}}), 4, 800).out, 0u);
}

TEST(TokenUsage, EventsCountWhereverTheyAreCut) {
  const std::string events = "data: {}\n\nevent: x\ndata: 2\n\n: dd\n\ndata: [DONE]\n\n";
  for (std::size_t piece = 1; piece < events.size(); ++piece) {
    AnswerForm form = AnswerForm::of({{"Content-Type", "text/event-stream; charset=utf-8"}});
    for (std::size_t at = 0; at < events.size(); at += piece)
      form.count(std::string_view(events).substr(at, piece));
    EXPECT_EQ(form.parts, 3u) << piece;
    EXPECT_EQ(estimated({}, form, 0, events.size()).out, 3u);
    EXPECT_EQ(estimated({}, form, 0, 3 * 256 + 4000).out, 1003u) << "many tokens in an event";
  }
}

}  // namespace
}  // namespace billow::gateway
