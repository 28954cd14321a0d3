// Mutated requests against mutated answers, for a bounded time; a failure prints the seed that
// repeats it.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

#include "tests/support/proxy_drive.h"

namespace billow::gateway {
namespace {

std::string req(std::string_view head, std::string_view body = {}) {
  return fmt::format("{}\r\n\r\n{}", head, body);
}

// What the parity test sends nginx and the gateway, in short: usual requests, and every kind that
// smuggling lives on.
const std::vector<std::string>& requests() {
  static const std::vector<std::string> all = {
      req("GET /a HTTP/1.1\r\nHost: localhost"),
      req("HEAD /a HTTP/1.1\r\nHost: localhost"),
      req("GET /a HTTP/1.0"),
      req("GET /a?b=%20 HTTP/1.1\r\nHost: localhost\r\nConnection: close"),
      req("POST /p HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5", "hello"),
      req("POST /p HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0"),
      req("POST /p HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked",
          "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"),
      req("POST /p HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nExpect: 100-continue",
          "abc"),
      req("POST /p HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked",
          "0\r\n\r\n"),
      req("POST /p HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nContent-Length: 4", "abcd"),
      req("POST /p HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3, 3", "abc"),
      req("POST /p HTTP/1.1\r\nHost: localhost\r\nContent-Length: +3", "abc"),
      req("POST /p HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip, chunked", "0\r\n\r\n"),
      req("POST /p HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding : chunked", "0\r\n\r\n"),
      req("POST /p HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked",
          "zz\r\nabc\r\n0\r\n\r\n"),
      req("POST /p HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked",
          "fffffffffffffffff\r\nabc\r\n"),
      req("GET /a HTTP/1.1\r\nHost: localhost\r\nX-A: 1\r\n folded"),
      "GET /a HTTP/1.1\nHost: localhost\n\n",
      req("GET /a HTTP/1.1\r\nHost: a\r\nHost: b"),
      req("GET /a HTTP/1.1\r\nHost: localhost\r\nX A: 1"),
      req("GET  /a HTTP/1.1\r\nHost: localhost"),
      req("GET /a HTTP/2.0\r\nHost: localhost"),
      "\r\n\r\n\r\n",
      "\x16\x03\x01\x02",
      req("GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: "
          "websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13",
          "\x81\x85____hello"),
      req("GET /a HTTP/1.1\r\nHost: localhost\r\nConnection: X-Secret, keep-alive\r\nX-Secret: "
          "1\r\nTE: "
          "trailers"),
      req("POST /p HTTP/1.1\r\nHost: localhost\r\nContent-Length: 6", "0\r\n\r\nG") +
          req("GET /admin HTTP/1.1\r\nHost: localhost"),
      req("POST /big HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000",
          std::string(60000, 'z')),
      req("GET /a HTTP/1.1\r\nHost: localhost\r\nX-Long: " + std::string(9000, 'v')),
  };
  return all;
}

const std::vector<std::string>& answers() {
  static const std::vector<std::string> all = {
      req("HTTP/1.1 200 OK\r\nContent-Length: 2", "ok"),
      req("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked", "2\r\nok\r\n0\r\n\r\n"),
      req("HTTP/1.1 200 OK", "until the end"),
      req("HTTP/1.0 200 OK\r\nContent-Length: 2", "ok"),
      req("HTTP/1.1 204 No Content"),
      req("HTTP/1.1 304 Not Modified\r\nContent-Length: 9"),
      req("HTTP/1.1 100 Continue") + req("HTTP/1.1 200 OK\r\nContent-Length: 2", "ok"),
      req("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket",
          "\x81\x05hello"),
      req("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3", "oki"),
      req("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked",
          "2\r\nok\r\n0\r\n\r\n"),
      req("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked", "-1\r\nok\r\n0\r\n\r\n"),
      req("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip", "x"),
      "HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
      req("HTTP/1.1 99 Odd"),
      req("HTTP/1.1 200 OK\r\nX: a\r\n b", "x"),
      req("HTTP/1.1 302 Found\r\nLocation: /there\r\nContent-Length: 0"),
      "garbage",
      "",
      req("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked", "2\r\nok\r\n0\r\nX-Trailer: 1\r\n\r\n"),
      req("HTTP/1.1 200 OK\r\nContent-Length: 100000", std::string(100000, 'y')),
      req("HTTP/1.1 200 OK\r\nContent-Length: 2", "ok") +
          req("HTTP/1.1 200 OK\r\nContent-Length: 3", "two"),
      req("HTTP/1.1 200 OK\r\nX-Long: " + std::string(200000, 'v')),
  };
  return all;
}

std::string mutated(Rng& rng, const std::vector<std::string>& corpus) {
  static const std::string_view tokens[] = {"\r\n",
                                            "\n",
                                            "\r",
                                            std::string_view("\0", 1),
                                            "Content-Length: 5\r\n",
                                            "Transfer-Encoding: chunked\r\n",
                                            "0\r\n\r\n",
                                            "\r\n\r\n",
                                            "Connection: close\r\n",
                                            "Upgrade: websocket\r\nConnection: Upgrade\r\n",
                                            " ",
                                            "\t",
                                            ":",
                                            "HTTP/1.1",
                                            "GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n",
                                            "ffffffff\r\n",
                                            "\xff",
                                            "100",
                                            "HEAD"};
  std::string out = corpus[rng.below(corpus.size())];
  while (rng.chance(0.3) && out.size() < 200'000)
    out += corpus[rng.below(corpus.size())];
  for (std::uint64_t n = rng.below(5); n > 0; --n) {
    const auto at = rng.below(out.size() + 1);
    switch (rng.below(5)) {
      case 0:
        out.insert(at, tokens[rng.below(std::size(tokens))]);
        break;
      case 1:
        out.erase(at, rng.below(20));
        break;
      case 2:
        if (at < out.size())
          out[at] = static_cast<char>(rng.below(256));
        break;
      case 3:
        out.insert(at, out.substr(rng.below(out.size() + 1), rng.below(60)));
        break;
      default:
        out.resize(at);
        break;
    }
  }
  return out;
}

TEST(ProxyFuzz, ReadersThatTellLiesFromMessages) {
  EXPECT_EQ(read_message("GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n", false, false).used, 36u);
  EXPECT_EQ(read_message("GET /a HTTP/1.1\r\nHost: localhost\r\n", false, false).used, 0u);
  for (const char* bad :
       {"GET /a b HTTP/1.1\r\n\r\n", "GET /a HTTP/1.1\r\nA\r\n\r\n",
        "GET /a HTTP/1.1\r\nA: b\nC: d\r\n\r\n",
        "P / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
        "P / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "P / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n\r\n"})
    EXPECT_NE(read_message(bad, false, false).wrong, "") << bad;
}

TEST(ProxyFuzz, AnyBytesFromBothSides) {
  const char* given = std::getenv("BILLOW_FUZZ_SEED");
  const char* seconds_given = std::getenv("BILLOW_FUZZ_SECONDS");
  const auto until = std::chrono::steady_clock::now() +
                     std::chrono::seconds(seconds_given ? std::atoi(seconds_given) : 6);
  ProxyDrive drive;
  std::uint64_t played = 0;
  if (given) {
    Rng rng(std::strtoull(given, nullptr, 10));
    const std::string a = mutated(rng, requests()), b = mutated(rng, answers());
    EXPECT_EQ(drive.play(a, b, rng.next()), "") << "\n--- client\n" << a << "\n--- replica\n" << b;
    return;
  }
  // What the corpus itself says, once each, then its mutations for as long as there is time.
  for (const auto& a : requests())
    for (const auto& b : {answers()[0], answers()[1], answers()[8]})
      ASSERT_EQ(drive.play(a, b, ++played), "") << a;
  EXPECT_GT(drive.requests(), 20u) << "the usual ones get through";
  const char* from = std::getenv("BILLOW_FUZZ_FROM");
  std::uint64_t seed = from ? std::strtoull(from, nullptr, 10) : 1'000'000;
  for (; std::chrono::steady_clock::now() < until; ++seed, ++played) {
    Rng rng(seed);
    const std::string a = mutated(rng, requests()), b = mutated(rng, answers());
    const std::string broken = drive.play(a, b, rng.next());
    ASSERT_EQ(broken, "") << "BILLOW_FUZZ_SEED=" << seed << " repeats it";
  }
  RecordProperty("played", static_cast<int>(played));
  std::printf("%llu plays, %llu requests reached a replica\n",
              static_cast<unsigned long long>(played),
              static_cast<unsigned long long>(drive.requests()));
}

}  // namespace
}  // namespace billow::gateway
