// The pure parts of the front door: routes of models, host names, and the word of proxies.
#include <gtest/gtest.h>

#include "base/crypto.h"
#include "gateway/pure/credentials.h"
#include "gateway/pure/forwarded.h"
#include "gateway/pure/host_names.h"
#include "gateway/pure/model_routes.h"

namespace billow::gateway {
namespace {

using Names = std::vector<std::string>;

ModelRoute route_of(std::vector<ModelTarget> to, Names fallbacks = {}) {
  ModelRoute route;
  route.name = "m";
  route.to = std::move(to);
  route.fallbacks = std::move(fallbacks);
  return route;
}
bool any(const std::string&) {
  return true;
}

TEST(ModelRoutes, WeightsHoldInEveryTenRequests) {
  ModelRoutes routes;
  routes.take({route_of({{"a", 9}, {"b", 1}}, {"c"})});
  for (int round = 0; round < 20; ++round) {
    int b = 0;
    for (int i = 0; i < 10; ++i) {
      const Names order = routes.order("m", any);
      b += order.front() == "b";
      EXPECT_EQ(order.back(), "c");
      EXPECT_EQ(order.size(), 3);
    }
    EXPECT_EQ(b, 1);
  }
}

TEST(ModelRoutes, WhatCannotBeUsedTakesNoPart) {
  ModelRoutes routes;
  routes.take({route_of({{"a", 9}, {"b", 1}}, {"c", "d"})});
  const auto without_a = [](const std::string& name) {
    return name != "a" && name != "d";
  };
  EXPECT_EQ(routes.order("m", without_a), Names({"b", "c"}));
  EXPECT_TRUE(routes.order("m", [](const std::string&) { return false; }).empty());
  EXPECT_TRUE(routes.order("other", any).empty());
}

TEST(ModelRoutes, ATableWithoutChangesKeepsTheTurns) {
  ModelRoutes routes;
  const auto route = route_of({{"a"}, {"b"}});
  routes.take({route});
  const std::string first = routes.order("m", any).front();
  routes.take({route});
  EXPECT_NE(routes.order("m", any).front(), first);
}

TEST(HostNames, LeadToEndpoints) {
  HostNames hosts({"Example.com"});
  hosts.take({{.name = "api.acme.org", .endpoint = "Chat"},
              {.name = "small.example.com", .endpoint = "other"}});
  using Kind = HostNames::Kind;
  const auto named = hosts.find("chat.EXAMPLE.com:8443");
  EXPECT_EQ(named.kind, Kind::endpoint);
  EXPECT_EQ(named.endpoint, "chat");
  EXPECT_TRUE(named.by_own_domain);
  EXPECT_EQ(hosts.find("API.acme.org.").endpoint, "Chat");
  EXPECT_EQ(hosts.find("small.example.com").endpoint, "small") << "nobody can claim it";
  EXPECT_EQ(hosts.find("example.com").kind, Kind::gateway);
  EXPECT_TRUE(hosts.find("example.com").by_own_domain) << "no page of another can have this name";
  EXPECT_FALSE(hosts.find("127.0.0.1").by_own_domain);
  for (const char* here : {"", "127.0.0.1:7071", "[::1]:7071", "localhost", "10.0.0.7"})
    EXPECT_EQ(hosts.find(here).kind, Kind::gateway) << here;
  for (const char* other : {"evil.com", "notexample.com", "chat.example.com.evil.org", "gpu-1"})
    EXPECT_EQ(hosts.find(other).kind, Kind::unknown) << other;
  EXPECT_EQ(hosts.domains(), Names({"api.acme.org"}));
}

TEST(HostNames, TheLongestOwnDomainCounts) {
  using Kind = HostNames::Kind;
  const std::vector<Names> orders = {{"example.org", "apps.example.org"},
                                     {"apps.example.org", "example.org"}};
  for (const Names& own : orders) {
    const HostNames hosts(own);
    EXPECT_EQ(hosts.find("chat.apps.example.org").endpoint, "chat");
    EXPECT_EQ(hosts.find("apps.example.org").kind, Kind::gateway);
    EXPECT_EQ(hosts.find("chat.example.org").endpoint, "chat");
    for (const char* dots : {"a.chat.apps.example.org", "a.b.example.org"})
      EXPECT_EQ(hosts.find(dots).kind, Kind::unknown) << dots;
  }
}

TEST(HostNames, ADomainWithoutAnEndpointLeadsNowhere) {
  HostNames hosts;
  hosts.take({{.name = "api.acme.org", .endpoint = ""}});
  const auto found = hosts.find("api.acme.org");
  EXPECT_EQ(found.kind, HostNames::Kind::endpoint) << "not the gateway itself";
  EXPECT_EQ(found.endpoint, "");
  EXPECT_TRUE(hosts.domains().empty()) << "no certificate is wanted";
}

TEST(HostNames, WithoutAnOwnDomainAnyNameIsTheGateway) {
  HostNames hosts;
  hosts.take({{.name = "api.acme.org", .endpoint = "chat"}});
  EXPECT_EQ(hosts.find("gpu-1:7071").kind, HostNames::Kind::gateway);
  EXPECT_EQ(hosts.find("api.acme.org:443").endpoint, "chat");
}

Networks networks(const Names& texts) {
  return Networks::parse(texts).value();
}

TEST(Forwarded, NetworksContainAddresses) {
  const Networks all = networks({"10.0.0.0/9,192.168.7.7", "fd00::/8"});
  EXPECT_TRUE(all.contains("10.127.255.255"));
  EXPECT_FALSE(all.contains("10.128.0.0"));
  EXPECT_TRUE(all.contains("::ffff:10.1.2.3"));
  EXPECT_TRUE(all.contains("192.168.7.7"));
  EXPECT_FALSE(all.contains("192.168.7.8"));
  EXPECT_TRUE(all.contains("fdab::1"));
  EXPECT_FALSE(all.contains("fe80::1"));
  EXPECT_FALSE(all.contains("example.org"));
  for (const char* wrong : {"10.0.0.0/33", "x", "", "fd00::/129", "10.0.0.0/-1", "10.0.0.0/x"})
    EXPECT_FALSE(Networks::parse({wrong})) << wrong;
}

TEST(Forwarded, TheLastUntrustedAddressIsTheClient) {
  const Networks trusted = networks({"10.0.0.0/8"});
  const auto client = [&](net::Headers headers) {
    return client_of(headers, trusted);
  };
  EXPECT_EQ(client({{"X-Forwarded-For", "1.1.1.1, 203.0.113.7, 10.0.0.2"}}).address, "203.0.113.7");
  EXPECT_EQ(client({{"X-Forwarded-For", "1.1.1.1"}, {"x-forwarded-for", "2.2.2.2"}}).address,
            "2.2.2.2")
      << "fields follow one another";
  EXPECT_EQ(client({{"X-Forwarded-For", "10.0.0.3, 10.0.0.2"}}).address, "10.0.0.3");
  EXPECT_EQ(client({{"X-Forwarded-For", "1.1.1.1, unknown"}}).address, "");
  EXPECT_EQ(client({}).address, "");
  const auto both = client({{"Forwarded", "for=1.1.1.1, For=\"[2001:db8::1]:80\";proto=https"},
                            {"X-Forwarded-For", "9.9.9.9, 2001:DB8:0::1"}});
  EXPECT_EQ(both.address, "2001:db8::1");
  EXPECT_TRUE(both.https);
  EXPECT_TRUE(client({{"X-Forwarded-For", "1.1.1.1"}, {"X-Forwarded-Proto", "https"}}).https);
  EXPECT_FALSE(
      client({{"X-Forwarded-For", "1.1.1.1"}, {"X-Forwarded-Proto", "https, http"}}).https);
}

TEST(Forwarded, AHeaderThatTheProxyDoesNotWriteNamesNoClient) {
  const Networks trusted = networks({"10.0.0.0/8"});
  const auto client = [&](net::Headers headers) {
    return client_of(headers, trusted);
  };
  const auto spoofed = client({{"X-Forwarded-For", "203.0.113.9"},
                               {"X-Forwarded-Proto", "http"},
                               {"Forwarded", "for=198.51.100.1;proto=https"}});
  EXPECT_EQ(spoofed.address, "") << "the proxy that passed it on counts";
  EXPECT_FALSE(spoofed.https);
  EXPECT_EQ(client({{"X-Forwarded-For", "203.0.113.9"}, {"Forwarded", "for=unknown"}}).address, "");
  EXPECT_EQ(client({{"X-Forwarded-For", "203.0.113.9"}, {"Forwarded", ""}}).address, "");
  EXPECT_EQ(client({{"X-Forwarded-For", "6.6.6.6"}, {"Forwarded", "for=203.0.113.9;proto=https"}})
                .address,
            "");
  EXPECT_FALSE(client({{"X-Forwarded-For", "203.0.113.9"},
                       {"X-Forwarded-Proto", "http"},
                       {"Forwarded", "for=203.0.113.9;proto=https"}})
                   .https)
      << "they name the same client, but not the same scheme";
  EXPECT_FALSE(client({{"X-Forwarded-Proto", "https"}, {"X-Forwarded-Proto", "http"}}).https);
  EXPECT_TRUE(client({{"X-Forwarded-Proto", "http"}, {"X-Forwarded-Proto", "https"}}).https);
  EXPECT_EQ(client({{"Forwarded", "for=203.0.113.9;x=\"a, for=6.6.6.6\""}}).address, "203.0.113.9");
  EXPECT_EQ(client({{"Forwarded", "for=6.6.6.6;x=\", for=203.0.113.9"}}).address, "")
      << "a quote that would hide what the proxy appended";
}

TEST(Credentials, KeysOfEndpointsAreFoundInEveryForm) {
  const std::string pair = base64("x:bwk_abc"), escaped = base64("x:bwk%5Fabc");
  for (const std::string& held :
       {std::string("Bearer bwk_abc"), std::string("bwk_abc"), std::string("Bearer bwk%5fabc"),
        std::string("Bearer %zz%62wk_abc"), "Basic " + pair, "basic  " + pair, "BASIC\t" + pair,
        "Basic " + base64("bwk_abc:"), "Basic " + base64("xy:bwk_abcd"),
        "Basic " + base64("xyz:bwk_a").substr(0, 11), "Basic " + escaped})
    EXPECT_TRUE(holds_endpoint_key(held)) << held;
  for (const std::string& own : {std::string("Bearer sk-abc"), "Basic " + base64("user:password"),
                                 std::string("Bearer bwk"), std::string("Basic"), std::string(""),
                                 std::string("%"), std::string("Bearer ") + base64("a token")})
    EXPECT_FALSE(holds_endpoint_key(own)) << own;
}

TEST(Credentials, AnOfferedKeyIsHashedUnlessItIsLongerThanAnyKey) {
  const auto hash = [](net::Headers headers) {
    return offered_key(headers).hash;
  };
  EXPECT_EQ(hash({{"Authorization", "Bearer bwk_abc"}}), sha256_hex("bwk_abc"));
  EXPECT_EQ(hash({{"X-Api-Key", "bwk_abc"}}), sha256_hex("bwk_abc"));
  EXPECT_EQ(hash({{"Authorization", "Basic " + base64("x:bwk_abc")}}), sha256_hex("bwk_abc"));
  EXPECT_EQ(hash({{"X-Api-Key", std::string(30'000, 'k')}}), "");
  EXPECT_EQ(hash({}), "");
}

std::string proxy_header(unsigned char command, unsigned char family, std::string_view body) {
  std::string out(proxy_signature);
  out += static_cast<char>(command);
  out += static_cast<char>(family);
  out += static_cast<char>(body.size() >> 8);
  out += static_cast<char>(body.size() & 255);
  return out + std::string(body);
}

TEST(Forwarded, ReadsTheProxyProtocol) {
  const std::string v4("\xcb\x00\x71\x07\x0a\x00\x00\x01\x12\x67\x01\xbb", 12);
  const auto header = read_proxy_header(proxy_header(0x21, 0x11, v4) + "GET /");
  ASSERT_TRUE(header);
  EXPECT_EQ(header->peer, "203.0.113.7:4711");
  EXPECT_EQ(header->bytes, 28);
  std::string v6(36, '\0');
  v6[0] = '\x20';
  v6[1] = '\x01';
  v6[15] = '\x09';
  v6[33] = '\x50';
  EXPECT_EQ(read_proxy_header(proxy_header(0x21, 0x21, v6))->peer, "[2001::9]:80");
  EXPECT_EQ(read_proxy_header(proxy_header(0x20, 0x00, ""))->peer, "") << "LOCAL";
  EXPECT_FALSE(read_proxy_header(proxy_header(0x11, 0x11, v4))) << "version 1";
  EXPECT_FALSE(read_proxy_header(proxy_header(0x21, 0x31, std::string(216, '\0')))) << "Unix";
  EXPECT_FALSE(read_proxy_header(proxy_header(0x21, 0x11, v4.substr(1))));
  EXPECT_FALSE(read_proxy_header(proxy_header(0x22, 0x11, v4)));
  const std::string whole = proxy_header(0x21, 0x11, v4);
  for (std::size_t i = 0; i < whole.size(); ++i)
    EXPECT_FALSE(read_proxy_header(std::string_view(whole).substr(0, i))) << i;
}

TEST(Forwarded, ReadsTheProxyProtocolAsALineOfText) {
  const std::string line = "PROXY TCP4 203.0.113.7 10.0.0.1 4711 443\r\n";
  const auto header = read_proxy_header(line + "GET /");
  ASSERT_TRUE(header);
  EXPECT_EQ(header->peer, "203.0.113.7:4711");
  EXPECT_EQ(header->bytes, line.size());
  EXPECT_EQ(read_proxy_header("PROXY TCP6 2001:db8::9 ::1 80 443\r\n")->peer, "[2001:db8::9]:80");
  EXPECT_EQ(read_proxy_header("PROXY UNKNOWN\r\nGET /")->peer, "");
  EXPECT_EQ(read_proxy_header("PROXY UNKNOWN a b c d\r\n")->bytes, 23);
  for (const char* wrong :
       {"PROXY TCP4 203.0.113.7 10.0.0.1 4711\r\n", "PROXY TCP4 localhost 10.0.0.1 1 2\r\n",
        "PROXY TCP4 ::1 ::1 1 2\r\n", "PROXY TCP4 1.2.3.4 1.2.3.4 1 65536\r\n",
        "PROXY TCP4 1.2.3.4  1.2.3.4 1 2\r\n", "PROXY UDP4 1.2.3.4 1.2.3.4 1 2\r\n",
        "POST / HTTP/1.1\r\n"})
    EXPECT_FALSE(read_proxy_header(wrong)) << wrong;
  EXPECT_FALSE(read_proxy_header("PROXY UNKNOWN " + std::string(100, 'x') + "\r\n")) << "too long";
  for (std::size_t i = 0; i < line.size(); ++i)
    EXPECT_FALSE(read_proxy_header(std::string_view(line).substr(0, i))) << i;
}

}  // namespace
}  // namespace billow::gateway
