#include "net_test_support.h"

namespace billow::net {

TEST(HttpClient, UsesAConnectionAgain) {
  ServerFixture f(
      [](std::shared_ptr<Exchange> x) { x->respond(Response::text(200, x->request().peer)); });
  auto client = *HttpClient::create(f.loop, {});
  const auto first = fetch(f, *client, {.endpoint = f.endpoint()});
  const auto second = fetch(f, *client, {.endpoint = f.endpoint()});
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->body, second->body);
  EXPECT_EQ(f.server->connections(), 1u);
}

TEST(HttpClient, AKeptConnectionTheServerClosedIsReplaced) {
  HttpServer::Options o;
  o.idle_timeout = milliseconds(40);
  ServerFixture f([](std::shared_ptr<Exchange> x) { x->respond(Response::text(200, "ok")); }, o);
  auto client = *HttpClient::create(f.loop, {});
  ASSERT_TRUE(fetch(f, *client, {.endpoint = f.endpoint()}));
  ASSERT_TRUE(f.run_until([&] { return f.server->connections() == 0; }));
  EXPECT_TRUE(fetch(f, *client, {.endpoint = f.endpoint(), .method = Method::post, .body = "x"}));
}

TEST(HttpClient, StreamsAnAnswerAndCancelsIt) {
  bool gone = false;
  std::shared_ptr<Exchange> stream;
  ServerFixture f([&](std::shared_ptr<Exchange> x) {
    x->start_stream(200, {{"X-A", "b"}});
    x->on_close([&] { gone = true; });
    stream = x;
  });
  auto client = *HttpClient::create(f.loop, {});
  std::string got, header;
  bool called = false;
  auto call =
      client->fetch({.endpoint = f.endpoint(),
                     .on_head = [&](const Response& head) { header = head.headers.get("x-a"); },
                     .on_chunk =
                         [&](std::string_view piece) {
                           got += piece;
                         }},
                    [&](Result<Response>) { called = true; });
  ASSERT_TRUE(f.run_until([&] { return header == "b"; }));
  ASSERT_TRUE(stream->write("abc"));
  ASSERT_TRUE(f.run_until([&] { return got == "abc"; }));
  call->cancel();
  EXPECT_TRUE(f.run_until([&] { return gone; }));
  EXPECT_FALSE(called) << "a cancelled call is not answered";
}

TEST(HttpClient, AnswersHaveALimitAndATimeout) {
  ServerFixture f(
      [held = std::vector<std::shared_ptr<Exchange>>{}](std::shared_ptr<Exchange> x) mutable {
        if (x->request().path == "/big")
          x->respond(Response::text(200, std::string(100'000, 'x')));
        else
          held.push_back(std::move(x));
      });
  auto client = *HttpClient::create(f.loop, {});
  const auto big =
      fetch(f, *client, {.endpoint = f.endpoint(), .target = "/big", .body_bytes_max = 1000});
  ASSERT_FALSE(big);
  EXPECT_EQ(big.error().code, Code::too_large);
  const auto slow =
      fetch(f, *client, {.endpoint = f.endpoint(), .target = "/slow", .timeout = milliseconds(50)});
  ASSERT_FALSE(slow);
  EXPECT_EQ(slow.error().code, Code::timed_out);
}

TEST(HttpClient, ARefusedConnectionSaysWhereAndWhatToDo) {
  ServerFixture f([](std::shared_ptr<Exchange> x) { x->respond({}); });
  const auto endpoint = f.endpoint();
  f.server.reset();
  auto client = *HttpClient::create(f.loop, {});
  const auto answer = fetch(f, *client, {.endpoint = endpoint});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Code::unavailable);
  EXPECT_NE(answer.error().message.find(endpoint.text()), std::string::npos);
  EXPECT_FALSE(answer.error().hint.empty());
}

TEST(HttpClient, FindsHostsByName) {
  ServerFixture f([](std::shared_ptr<Exchange> x) {
    x->respond(Response::text(200, std::string(x->request().headers.get("Host"))));
  });
  auto endpoint = f.endpoint();
  endpoint.address.host = "localhost";
  auto client = *HttpClient::create(f.loop, {});
  const auto answer = fetch(f, *client, {.endpoint = endpoint});
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->body, endpoint.address.text());
}

TEST(HttpClient, HeadAndEmptyAnswersHaveNoBody) {
  ServerFixture f([](std::shared_ptr<Exchange> x) {
    x->respond(x->request().path == "/204" ? Response{204, {}, ""} : Response::text(200, "abc"));
  });
  auto client = *HttpClient::create(f.loop, {});
  const auto head = fetch(f, *client, {.endpoint = f.endpoint(), .method = Method::head});
  const auto none = fetch(f, *client, {.endpoint = f.endpoint(), .target = "/204"});
  const auto body = fetch(f, *client, {.endpoint = f.endpoint()});
  ASSERT_TRUE(head && none && body);
  EXPECT_EQ(head->body, "");
  EXPECT_EQ(head->headers.get("Content-Length"), "3");
  EXPECT_EQ(none->status, 204);
  EXPECT_EQ(body->body, "abc");
  EXPECT_EQ(f.server->connections(), 1u);
}

}  // namespace billow::net
