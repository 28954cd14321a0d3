// What clients and strangers may not do: evade the limits of their keys, take more memory, time or
// space in the log than is theirs, pose as somebody else, or stay when their key is gone.
#include <unistd.h>

#include "base/crypto.h"
#include "base/file.h"
#include "proxy_rig.h"

namespace billow::gateway {
namespace {

void keyed(Rig& rig, std::vector<KeyLimit> limits, bool with_key = true) {
  Table t;
  EndpointRow row{.name = "app"};
  row.serving = 1;
  row.policy.access = EndpointAccess::key;
  row.policy.min = 1;
  row.policy.concurrency = 100;
  if (with_key)
    row.key_rows = {{.name = "ci", .hash = sha256_hex("the-key"), .limits = std::move(limits)}};
  row.replicas = {{.job = 1,
                   .revision = 1,
                   .address = rig.app.server->bound_addresses()[0],
                   .job_state = JobState::running,
                   .task_state = TaskState::running}};
  t.endpoints = {row};
  rig.gateway->take_table(t);
}

std::string post(std::string_view path, std::size_t bytes, std::string_view fields = "") {
  return fmt::format(
      "POST {} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer the-key\r\n{}"
      "Content-Length: {}\r\n\r\n{}",
      path, fields, bytes, std::string(bytes, 'x'));
}

std::vector<KeyLimit> tokens_a_day(std::int64_t tokens) {
  return {{LimitOf::tokens, LimitPer::day, tokens}};
}

TEST(GuardedLimits, AnAnswerWithoutUsageIsCharged) {
  Rig rig;
  keyed(rig, tokens_a_day(100));
  EXPECT_NE(rig.exchange(post("/f/app/x", 400)).find("200 OK"), std::string::npos);
  EXPECT_NE(rig.exchange(post("/f/app/x", 4)).find(" 429 "), std::string::npos);
}

TEST(GuardedLimits, AStreamThatIsCutIsCharged) {
  Rig rig;
  keyed(rig, tokens_a_day(20));
  {
    auto c = rig.client();
    c.send(post("/f/app/stream", 4));
    ASSERT_TRUE(rig.run_until([&] { return rig.open && c.has("text/event-stream"); }));
    for (int i = 0; i < 30; ++i)
      ASSERT_TRUE(rig.open->write(fmt::format("data: {}\n\n", i)));
    ASSERT_TRUE(rig.run_until([&] { return c.has("data: 29"); }));
  }
  ASSERT_TRUE(rig.run_until([&] { return rig.gone; }));
  EXPECT_NE(rig.exchange(post("/f/app/x", 4)).find(" 429 "), std::string::npos);
}

TEST(GuardedLimits, AnswersToKeysWithLimitsOfTokensAreReadable) {
  Rig rig;
  for (const bool limited : {true, false}) {
    keyed(rig, limited ? tokens_a_day(100'000) : std::vector<KeyLimit>());
    const auto seen = rig.exchange(post("/f/app/headers", 1, "Accept-Encoding: gzip\r\n"));
    EXPECT_EQ(occurrences(seen, "Accept-Encoding: identity"), limited ? 1u : 0u) << seen;
    EXPECT_EQ(occurrences(seen, "gzip"), limited ? 0u : 1u) << seen;
  }
}

TEST(GuardedLimits, TheFirstBytesOfABodyCountToo) {
  Rig rig;
  EndpointPolicy open;
  open.access = EndpointAccess::open;
  rig.table(1, open);
  constexpr std::size_t sent = 60'000, fit = (16 << 20) / sent;
  std::vector<RawClient> all;
  for (std::size_t i = 0; i < fit + 20; ++i) {
    all.push_back(rig.client());
    std::string unsent =
        "POST /v1/x HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: 203.0.113.7\r\n"
        "Content-Length: 8388608\r\n\r\n" +
        std::string(sent, ' ');
    ASSERT_TRUE(rig.run_until([&] {
      const auto n =
          ::send(all.back().fd(), unsent.data(), unsent.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      unsent.erase(0, n > 0 ? static_cast<std::size_t>(n) : 0);
      return unsent.empty();
    }));
  }
  EXPECT_TRUE(rig.run_until([&] { return all.back().has(" 503 "); }));
  EXPECT_FALSE(all.front().has("HTTP/1.1 "));
}

TEST(GuardedLimits, ABodyThatDripsDoesNotHoldAReplica) {
  Rig rig;
  EndpointPolicy quick;
  quick.timeout = milliseconds(200);
  rig.table(1, quick);
  auto c = rig.client();
  c.send("POST /f/app/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n");
  EXPECT_TRUE(rig.run_until([&] {
    c.send("x");
    ::usleep(1000);
    return c.has("HTTP/1.1 408");
  }));
}

TEST(GuardedLimits, InterimAnswersDoNotHoldAClient) {
  Rig rig;
  const auto listener = net::listen_on(*net::parse_address("127.0.0.1:0"));
  ASSERT_TRUE(listener);
  Table t;
  EndpointRow row{.name = "raw"};
  row.serving = 1;
  row.policy.min = 1;
  row.policy.timeout = milliseconds(300);
  row.replicas = {{.job = 1,
                   .revision = 1,
                   .address = listener->bound.text(),
                   .job_state = JobState::running,
                   .task_state = TaskState::running}};
  t.endpoints = {row};
  rig.gateway->take_table(t);
  rig.gateway->find("raw")->checked(1, Check::good, rig.app.loop.steady());
  auto c = rig.client();
  c.send("GET /f/raw/x HTTP/1.1\r\nHost: localhost\r\n\r\n");
  std::vector<Fd> replica;
  EXPECT_TRUE(rig.run_until([&] {
    pollfd p{listener->fd.get(), POLLIN, 0};
    while (::poll(&p, 1, 0) == 1)
      replica.emplace_back(::accept4(p.fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    for (const Fd& each : replica) {
      constexpr std::string_view interim = "HTTP/1.1 102 Processing\r\n\r\n";
      (void)::send(each.get(), interim.data(), interim.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    ::usleep(5000);
    return c.has("the replica did not answer within");
  })) << c.received;
}

TEST(GuardedLimits, FieldsOfGatewaysAreNotTakenFromClients) {
  Rig rig;
  const auto seen = rig.exchange(
      "GET /f/app/headers HTTP/1.1\r\nHost: localhost\r\nX-Billow-Mirror: 1\r\nX_Billow_Call: 1\r\n"
      "X-Billow-Call-Client: 6.6.6.6\r\nX-Billow-Request: 1\r\nX-Billow-Secret: s\r\n"
      "X-Other: 1\r\n\r\n");
  EXPECT_NE(seen.find("X-Other: 1"), std::string::npos);
  EXPECT_NE(seen.find("X-Billow-Request: 1"), std::string::npos) << "the head's, behind a gateway";
  EXPECT_NE(seen.find("X-Billow-Secret: s"), std::string::npos) << "a Python function's";
  for (const char* gone : {"Mirror", "X_Billow_Call", "6.6.6.6"})
    EXPECT_EQ(seen.find(gone), std::string::npos) << gone;
}

TEST(GuardedLimits, ConnectionCannotNameWhatEverybodyNeeds) {
  Rig rig;
  const std::string get = "GET /f/app/headers HTTP/1.1\r\nHost: localhost:7\r\n";
  const auto seen = rig.exchange(
      get + "Connection: host , X-Secret,Content-Type\r\nX-Secret: 1\r\nContent-Type: a/b\r\n\r\n");
  EXPECT_NE(seen.find("\nHost: localhost:7"), std::string::npos) << seen;
  EXPECT_NE(seen.find("Content-Type: a/b"), std::string::npos);
  EXPECT_EQ(seen.find("X-Secret"), std::string::npos);
  std::string many = "Connection: a";
  for (std::size_t i = 1; i < connection_options_max; ++i)
    many += ",a";
  EXPECT_NE(rig.exchange(get + many + "\r\n\r\n").find("200 OK"), std::string::npos);
  EXPECT_NE(rig.exchange(get + many + ",a\r\n\r\n").find(" 400 "), std::string::npos);
}

TEST(GuardedLimits, AnAsynchronousCallHasTheAddressOfItsClient) {
  Proxy::Options options;
  options.trusted = Networks::parse({"127.0.0.1"}).value();
  Rig rig(options);
  const auto seen =
      rig.exchange("GET /f/app/headers HTTP/1.1\r\nHost: localhost\r\nX-Billow-Internal: " +
                   rig.gateway->secret() +
                   "\r\nX-Billow-Call-Client: 203.0.113.9\r\nX-Billow-Call-Proto: https\r\n"
                   "X-Billow-Call: number\r\nX-Billow-Call-Key: ci\r\n\r\n");
  EXPECT_NE(seen.find("X-Forwarded-For: 203.0.113.9"), std::string::npos) << seen;
  EXPECT_NE(seen.find("X-Forwarded-Proto: https"), std::string::npos);
  EXPECT_NE(seen.find("X-Billow-Call: number"), std::string::npos);
  EXPECT_EQ(seen.find("X-Billow-Call-Key"), std::string::npos);
}

TEST(GuardedLimits, AnAsynchronousCallIsChargedItsTokens) {
  Rig rig;
  keyed(rig, tokens_a_day(100));
  EXPECT_NE(
      rig.exchange(post("/f/app/x", 400,
                        "X-Billow-Internal: " + rig.gateway->secret() +
                            "\r\nX-Billow-Call-Key: ci\r\nX-Billow-Call-Key-Endpoint: app\r\n"))
          .find("200 OK"),
      std::string::npos);
  EXPECT_NE(rig.exchange(post("/f/app/x", 4)).find(" 429 "), std::string::npos);
}

TEST(GuardedLimits, AStreamEndsWithItsKey) {
  Rig rig;
  keyed(rig, {});
  auto c = rig.client();
  c.send(post("/f/app/stream", 4));
  ASSERT_TRUE(rig.run_until([&] { return rig.open && c.has("text/event-stream"); }));
  keyed(rig, {});
  (void)rig.app.loop.run_until([&] { return c.pull(); }, milliseconds(100));
  EXPECT_FALSE(rig.gone);
  keyed(rig, {}, false);
  EXPECT_TRUE(rig.run_until([&] { return rig.gone && c.pull(); }));
}

TEST(GuardedLimits, StrangersDoNotFillTheAccessLog) {
  const net::TempDir dir;
  Rig rig({}, {}, dir / ".");
  const auto log = [&] {
    return read_file(dir / "access.log").value_or("");
  };
  const std::string end = " HTTP/1.1\r\nHost: localhost\r\n\r\n";
  (void)rig.exchange("GET /" + std::string(20'000, 'a') + end);
  ASSERT_TRUE(rig.run_until([&] { return log().find("aaa") != std::string::npos; }));
  EXPECT_LT(log().size(), 2000u);
  EXPECT_NE(log().find("a...+18977\" 404"), std::string::npos) << log();
  auto c = rig.client();
  for (int i = 0; i < 1000; ++i) {
    c.send("GET /" + std::string(900, 'b') + end);
    (void)rig.app.loop.run_until([&] { return c.pull(); }, milliseconds(0));
  }
  ASSERT_TRUE(rig.run_until([&] {
    (void)c.pull();
    return occurrences(c.received, "HTTP/1.1 404 ") == 1000;
  }));
  ASSERT_TRUE(rig.run_until([&] {
    (void)rig.exchange("GET /last" + end);
    return log().find("more requests were turned away") != std::string::npos;
  }));
  EXPECT_LT(log().size(), 600'000u);
}

TEST(GuardedLimits, OldFilesOfTheLogAreKept) {
  const net::TempDir dir;
  const std::string path = dir / "log";
  for (int i = 0; i < 6; ++i) {
    ASSERT_TRUE(write_file_atomic(path, std::to_string(i), 0600));
    keep_old_files(path, 3);
  }
  EXPECT_FALSE(file_exists(path));
  EXPECT_EQ(read_file(path + ".1").value_or(""), "5");
  EXPECT_EQ(read_file(path + ".3").value_or(""), "3");
  EXPECT_FALSE(file_exists(path + ".4"));
}

}  // namespace
}  // namespace billow::gateway
