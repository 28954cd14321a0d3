// Connections through a proxy: which go that way, what is asked, and what its answer means.
#include "net/http/proxy.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

namespace billow::net {
namespace {

TEST(Proxy, OnlyWhatLeavesTheMachineGoesThroughIt) {
  ::setenv(proxy_variable, "http://10.0.0.2:3128", 1);
  const auto through = proxy_for(*parse_endpoint("https://head.example:7070"));
  ASSERT_TRUE(through);
  EXPECT_EQ(through->text(), "10.0.0.2:3128");
  EXPECT_FALSE(proxy_for(*parse_endpoint("http://127.0.0.1:7070")));
  EXPECT_FALSE(proxy_for(*parse_endpoint("unix:/run/billow.sock")));
  EXPECT_FALSE(proxy_for(*parse_endpoint("http://169.254.169.254")));
  ::unsetenv(proxy_variable);
  EXPECT_FALSE(proxy_for(*parse_endpoint("https://head.example:7070")));
}

TEST(Proxy, OtherUrlsAreRefused) {
  EXPECT_TRUE(parse_proxy("http://proxy:3128"));
  for (const char* url : {"https://proxy:3128", "socks5://proxy", "proxy:3128",
                          "http://user:word@proxy:3128", "http://proxy:3128/path", ""})
    EXPECT_FALSE(parse_proxy(url)) << url;
}

TEST(Proxy, ItsAnswerIsTakenAndNothingBehindIt) {
  const Address proxy = *parse_address("10.0.0.2:3128");
  EXPECT_EQ(*connect_answer("HTTP/1.1 200 OK\r\nA: b\r\n", proxy), 0u);
  EXPECT_EQ(*connect_answer("HTTP/1.1 200 OK\r\n\r\nrest", proxy), 19u);
  const auto refused = connect_answer("HTTP/1.1 403 Forbidden\r\n\r\n", proxy);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("403 Forbidden"), std::string::npos);
  EXPECT_FALSE(connect_answer("SSH-2.0\r\n\r\n", proxy));

  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const auto taken = [&] {
    return take_connect_answer(ends[0], proxy);
  };
  EXPECT_FALSE(*taken());
  ASSERT_EQ(::write(ends[1], "HTTP/1.1 200", 12), 12);
  EXPECT_FALSE(*taken());
  ASSERT_EQ(::write(ends[1], " OK\r\n\r\nhello", 12), 12);
  EXPECT_TRUE(*taken());
  char rest[16] = "";
  EXPECT_EQ(::read(ends[0], rest, sizeof rest), 5);
  EXPECT_STREQ(rest, "hello");
  ::close(ends[1]);
  EXPECT_FALSE(taken());
  ::close(ends[0]);
}

}  // namespace
}  // namespace billow::net
