#include <gtest/gtest.h>

#include "net/http/sse.h"

namespace billow::net {

TEST(Sse, EventsComeBackAsWritten) {
  const std::vector<SseEvent> sent = {{"7", "job", "{\"a\":1}"},
                                      {"8", "", "two\nlines"},
                                      {"9", "empty", ""},
                                      {"10", "", "trailing\n"}};
  std::string wire;
  for (const auto& e : sent)
    wire += format_sse(e) + format_sse_comment("beat");
  for (std::size_t step = 1; step < 9; ++step) {
    std::vector<SseEvent> got;
    SseParser parser([&](const SseEvent& e) { got.push_back(e); });
    for (std::size_t at = 0; at < wire.size(); at += step)
      ASSERT_TRUE(parser.feed(std::string_view(wire).substr(at, step)));
    ASSERT_EQ(got.size(), sent.size()) << "pieces of " << step;
    for (std::size_t i = 0; i < sent.size(); ++i) {
      EXPECT_EQ(got[i].id, sent[i].id);
      EXPECT_EQ(got[i].event, sent[i].event);
      EXPECT_EQ(got[i].data, sent[i].data);
    }
    EXPECT_EQ(parser.last_id(), "10");
  }
}

TEST(Sse, AnIdCannotSmuggleAnotherField) {
  EXPECT_EQ(format_sse({"1\ndata: x", "a\r\nid: 2", "d"}),
            "id: 1data: x\nevent: aid: 2\ndata: d\n\n");
}

TEST(Sse, CrLfAndCrEndLinesToo) {
  int events = 0;
  SseParser parser([&](const SseEvent& e) {
    ++events;
    EXPECT_EQ(e.data, "x\ny");
  });
  ASSERT_TRUE(parser.feed("data: x\r"));
  ASSERT_TRUE(parser.feed("\ndata: y\r\n\r\ndata: x\rdata:y\r\r"));
  EXPECT_EQ(events, 2);
}

TEST(Sse, AnEndlessEventIsRefused) {
  SseParser parser([](const SseEvent&) { FAIL(); });
  const std::string piece(1 << 20, 'x');
  Status status;
  for (int i = 0; i < 6 && status; ++i)
    status = parser.feed(piece);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::too_large);
}

}  // namespace billow::net
