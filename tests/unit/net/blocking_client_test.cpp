#include "net/http/blocking_client.h"

#include <atomic>

#include "net_test_support.h"

namespace billow::net {

Handler mixed() {
  return [](std::shared_ptr<Exchange> x) {
    const auto& r = x->request();
    if (r.path == "/echo")
      return x->respond(Response::text(200, r.body));
    if (r.path == "/peer")
      return x->respond(Response::text(200, r.peer));
    if (r.path == "/close")
      return x->respond({200, {}, "bye"});
    if (r.path == "/error")
      return x->respond(problem(409, "in the way"));
    if (r.path == "/stream") {
      x->start_stream(200, {});
      for (int i = 0; i < 100; ++i)
        EXPECT_TRUE(x->write(fmt::format("line {}\n", i)));
      return x->finish();
    }
    if (r.path == "/endless") {
      x->start_stream(200, {});
      EXPECT_TRUE(x->write("first"));
      x->on_close([x] {});  // held until the client goes
      return;
    }
    x->respond(problem(404, "no such thing"));
  };
}

TEST(BlockingClient, KeepsOneConnection) {
  ThreadedServer s(mixed());
  BlockingClient client({.endpoint = s.endpoint()});
  const auto a = client.get("/peer");
  const auto b = client.get("/peer");
  ASSERT_TRUE(a && b);
  EXPECT_EQ(a->body, b->body);
  const auto missing = client.get("/nothing");
  ASSERT_TRUE(missing);
  EXPECT_EQ(missing->status, 404);
  const auto big = client.request(
      {.method = Method::post, .target = "/echo", .body = std::string(3 << 20, 'b')});
  ASSERT_TRUE(big);
  EXPECT_EQ(big->body.size(), 3u << 20);
}

TEST(BlockingClient, SpeaksOverUnixSockets) {
  TempDir dir;
  ThreadedServer s(mixed(), {.listen = {"unix:" + (dir / "head.sock")}});
  BlockingClient client({.endpoint = *parse_endpoint("unix:" + (dir / "head.sock"))});
  const auto answer =
      client.request({.method = Method::post, .target = "/echo", .body = "over unix"});
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->body, "over unix");
}

TEST(BlockingClient, StreamsPiecesAndStopsOnRequest) {
  ThreadedServer s(mixed());
  BlockingClient client({.endpoint = s.endpoint()});
  std::string all;
  ASSERT_TRUE(client.request({.target = "/stream", .on_chunk = [&](std::string_view piece) {
                                all += piece;
                                return true;
                              }}));
  EXPECT_EQ(occurrences(all, "\n"), 100u);
  std::string first;
  ASSERT_TRUE(client.request({.target = "/endless", .on_chunk = [&](std::string_view piece) {
                                first += piece;
                                return false;
                              }}));
  EXPECT_EQ(first, "first");
  const auto error = client.request({.target = "/error", .on_chunk = [](std::string_view) {
                                       ADD_FAILURE();
                                       return true;
                                     }});
  ASSERT_TRUE(error);
  EXPECT_NE(error->body.find("in the way"), std::string::npos);
}

TEST(BlockingClient, AnotherDescriptorEndsAStream) {
  ThreadedServer s(mixed());
  int pipe_fds[2];
  ASSERT_EQ(::pipe(pipe_fds), 0);
  Fd read_end(pipe_fds[0]), write_end(pipe_fds[1]);
  BlockingClient client({.endpoint = s.endpoint()});
  bool woken = false;
  const auto answer = client.request(
      {.target = "/endless",
       .on_chunk = [&](std::string_view) { return ::write(write_end.get(), "x", 1) == 1; },
       .watch_fd = read_end.get(),
       .on_watch =
           [&] {
             woken = true;
             return false;
           }});
  EXPECT_TRUE(answer);
  EXPECT_TRUE(woken);
}

TEST(BlockingClient, UploadsFromASourceWithoutHoldingItAll) {
  std::atomic<std::uint64_t> received = 0;
  HttpServer::Options o;
  o.body_policy = [&](const Request&) -> Result<BodyPlan> {
    return BodyPlan{.bytes_max = 1 << 30, .on_chunk = [&](std::string_view p) -> Status {
                      received += p.size();
                      return {};
                    }};
  };
  ThreadedServer s([](std::shared_ptr<Exchange> x) { x->respond({}); }, o);
  BlockingClient client({.endpoint = s.endpoint()});
  int left = 64;
  const auto answer = client.request(
      {.method = Method::put, .target = "/", .body_source = [&]() -> Result<std::string> {
         return left-- > 0 ? std::string(256 << 10, 'u') : std::string();
       }});
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(received, 64u * (256u << 10));
}

TEST(BlockingClient, AnEarlyRefusalOfALargeBodyIsRead) {
  ThreadedServer s(mixed());
  BlockingClient client({.endpoint = s.endpoint()});
  const auto answer = client.request(
      {.method = Method::post, .target = "/echo", .body = std::string(10 << 20, 'b')});
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->status, 413);
}

TEST(BlockingClient, AServerThatRestartedIsCalledAgain) {
  TempDir dir;
  const std::string where = "unix:" + (dir / "s");
  auto s = std::make_unique<ThreadedServer>(mixed(), HttpServer::Options{.listen = {where}});
  BlockingClient client({.endpoint = *parse_endpoint(where)});
  ASSERT_TRUE(client.get("/peer"));
  s.reset();
  const auto gone = client.get("/peer");
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().code, Code::unavailable);
  s = std::make_unique<ThreadedServer>(mixed(), HttpServer::Options{.listen = {where}});
  EXPECT_TRUE(client.get("/peer"));
}

TEST(BlockingClient, ASilentServerTimesOut) {
  ThreadedServer s([held = std::vector<std::shared_ptr<Exchange>>{}](
                       std::shared_ptr<Exchange> x) mutable { held.push_back(x); });
  BlockingClient client({.endpoint = s.endpoint()});
  const auto answer = client.request({.timeout = milliseconds(50)});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Code::timed_out);
}

}  // namespace billow::net
