// A thousand followers on one thread, some of them slow, all of them bounded.
#include <sys/resource.h>

#include "net/http/sse.h"
#include "net_test_support.h"

namespace billow::net {

bool raise_file_limit(rlim_t wanted) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur < wanted) {
    limit.rlim_cur = std::min(wanted, limit.rlim_max);
    ::setrlimit(RLIMIT_NOFILE, &limit);
    ::getrlimit(RLIMIT_NOFILE, &limit);
  }
  return limit.rlim_cur >= wanted;
}

TEST(ManyStreams, AThousandFollowersGetEveryEventOnOneThread) {
  constexpr std::size_t followers = 1000;
  constexpr int events = 20;
  if (!raise_file_limit(2 * followers + 200))
    GTEST_SKIP() << "needs " << 2 * followers + 200 << " open files";
  std::vector<std::shared_ptr<Exchange>> streams;
  ServerFixture f([&](std::shared_ptr<Exchange> x) {
    x->start_stream(200, {{"Content-Type", "text/event-stream"}});
    streams.push_back(std::move(x));
  });
  auto client = *HttpClient::create(f.loop, {});
  struct Follower {
    std::vector<std::string> ids;
    std::unique_ptr<SseParser> parser;
    bool done = false;
  };
  std::vector<Follower> all(followers);
  for (auto& each : all) {
    each.parser =
        std::make_unique<SseParser>([&each](const SseEvent& e) { each.ids.push_back(e.id); });
    client->fetch({.endpoint = f.endpoint(),
                   .on_chunk =
                       [&each](std::string_view piece) {
                         EXPECT_TRUE(each.parser->feed(piece));
                       }},
                  [&each](Result<Response> r) { each.done = r.has_value(); });
  }
  ASSERT_TRUE(f.run_until([&] { return streams.size() == followers; }));
  for (int i = 1; i <= events; ++i) {
    const std::string event = format_sse({std::to_string(i), "job", "{\"state\":\"running\"}"});
    for (auto& stream : streams)
      ASSERT_TRUE(stream->write(event));
    ASSERT_TRUE(f.run_until([&] {
      return std::all_of(all.begin(), all.end(), [&](const Follower& e) {
        return e.ids.size() == static_cast<std::size_t>(i);
      });
    }));
  }
  for (auto& stream : streams)
    stream->finish();
  ASSERT_TRUE(f.run_until([&] {
    return std::all_of(all.begin(), all.end(), [](const Follower& e) { return e.done; });
  }));
  for (const auto& each : all)
    for (int i = 0; i < events; ++i)
      ASSERT_EQ(each.ids[static_cast<std::size_t>(i)], std::to_string(i + 1));
}

TEST(ManyStreams, OneSlowFollowerIsDroppedAndTheOthersGoOn) {
  HttpServer::Options o;
  o.stream_buffer_bytes_max = 256 << 10;
  std::vector<std::shared_ptr<Exchange>> streams;
  ServerFixture f(
      [&](std::shared_ptr<Exchange> x) {
        x->start_stream(200, {});
        streams.push_back(std::move(x));
      },
      o);
  RawClient slow(f);
  slow.send("GET /slow HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(f.run_until([&] { return streams.size() == 1; }));
  std::vector<std::unique_ptr<RawClient>> fast;
  for (int i = 0; i < 8; ++i) {
    fast.push_back(std::make_unique<RawClient>(f));
    fast.back()->send("GET /fast HTTP/1.1\r\nHost: x\r\n\r\n");
  }
  ASSERT_TRUE(f.run_until([&] { return streams.size() == 9; }));
  const std::string piece(64 << 10, 'e');
  int dropped = 0, rounds = 0;
  while (dropped == 0) {
    ASSERT_LT(++rounds, 2000) << "the slow follower's buffer has no end";
    for (auto& stream : streams) {
      if (stream && !stream->write(piece)) {
        EXPECT_EQ(stream->request().path, "/slow");
        stream->abort();  // the stated overflow rule: it resumes by its last id
        stream.reset();
        ++dropped;
      }
    }
    ASSERT_TRUE(f.run_until([&] {
      std::size_t waiting = 0;
      for (auto& each : fast) {
        each->pull();
        each->received.clear();
      }
      for (std::size_t i = 1; i < streams.size(); ++i)
        waiting += streams[i]->buffered();
      return waiting == 0;
    }));
  }
  EXPECT_EQ(dropped, 1);
  for (std::size_t i = 1; i < streams.size(); ++i)
    EXPECT_TRUE(streams[i]->open());
  EXPECT_TRUE(f.run_until([&] { return slow.pull(); }));
}

}  // namespace billow::net
