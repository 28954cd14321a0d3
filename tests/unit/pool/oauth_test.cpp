// Tokens, names and answers that clouds of several kinds share; the clouds themselves are played in
// tests/clouds.
#include <gtest/gtest.h>

#include "base/crypto.h"
#include "pool/oauth/jwt.h"
#include "pool/oauth/login.h"
#include "pool/pending_orders.h"
#include "pool/resource_name.h"

namespace billow::pool {
namespace {

// Time that a test moves.
class HandClock final : public Clock {
 public:
  WallTime wall() const override { return {wall_ns}; }
  SteadyTime steady() const override { return {wall_ns}; }
  std::int64_t wall_ns = 1'000'000'000'000;
};

TEST(ResourceName, IsWhatCloudsAllowAndUnique) {
  EXPECT_EQ(resource_name("ab12cd34", "fast-7"), "billow-ab12cd34-fast-7");
  const std::vector<std::string> odd = {"Fast-7",
                                        "fast.7",
                                        "fast_7",
                                        "FAST-7",
                                        "fast-7-",
                                        "f\xc3\xa4st-7",
                                        std::string(90, 'x'),
                                        std::string(91, 'x')};
  std::set<std::string> names;
  for (const std::string& machine : odd) {
    const std::string name = resource_name("ab12cd34", machine);
    EXPECT_LE(name.size(), 63u) << name;
    EXPECT_TRUE(std::ranges::all_of(name, [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
    })) << name;
    EXPECT_NE(name.back(), '-');
    EXPECT_TRUE(names.insert(name).second) << name;
  }
  EXPECT_FALSE(names.contains(resource_name("ab12cd34", "fast-7")));
  EXPECT_EQ(label_value("my_pool"), "my_pool");
  EXPECT_LE(label_value(std::string(100, 'y')).size(), 63u);
}

TEST(RequestUuid, DependsOnTheWordsAlone) {
  EXPECT_EQ(request_uuid("a"), request_uuid("a"));
  EXPECT_NE(request_uuid("a"), request_uuid("b"));
  EXPECT_EQ(request_uuid("a").size(), 36u);
}

TEST(Jwt, NeedsAnRsaKeyAndReadsClaims) {
  EXPECT_FALSE(signed_jwt(JwtAlgorithm::rs256, Json::object(), Json::object(), "no key"));
  EXPECT_FALSE(signed_jwt(JwtAlgorithm::rs256, Json::object(), Json::object(), make_signing_key()))
      << "a key of another kind";
  EXPECT_EQ(unverified_claims("e30.eyJ1cG4iOiJtZSJ9.x")["upn"].str_or(""), "me");
  for (const char* text : {"", ".", "..", "a.b", "e30.!!!.x", "e30.e30"})
    EXPECT_TRUE(unverified_claims(text).members().empty()) << text;
}

TEST(LoginCache, RenewsEarlyAndKeepsAValidTokenWhileItCannot) {
  HandClock clock;
  int asked = 0;
  bool answers = true;
  LoginCache cache(
      [&]() -> Result<Login> {
        ++asked;
        if (!answers)
          return fail(Code::unavailable, "no answer");
        Login login;
        login.token = fmt::format("token-{}", asked);
        login.expires_at = clock.wall() + minutes(60);
        return login;
      },
      clock);
  EXPECT_EQ(cache.get()->token, "token-1");
  EXPECT_EQ(cache.get()->token, "token-1");
  clock.wall_ns += minutes(56).ns;
  answers = false;
  EXPECT_EQ(cache.get()->token, "token-1") << "it is still valid";
  clock.wall_ns += minutes(5).ns;
  EXPECT_FALSE(cache.get());
  answers = true;
  EXPECT_EQ(cache.get()->token, "token-4");
  cache.forget("token-1");
  EXPECT_EQ(cache.get()->token, "token-4") << "another one was refused";
  cache.forget("token-4");
  EXPECT_EQ(cache.get()->token, "token-5");
}

TEST(ReadToken, TellsWrongCredentialsFromASilentServer) {
  net::Response response;
  response.body = R"({"access_token": "t", "expires_in": "3599"})";
  const auto token = read_token(response, "the server", WallTime{1});
  ASSERT_TRUE(token);
  EXPECT_EQ(token->expires_at.ns, 1 + seconds(3599).ns);
  response.body = "{\"access_token\": \"a\\nb\"}";
  EXPECT_FALSE(read_token(response, "the server", WallTime{1})) << "it would split a header";
  response.body = R"({"error": "invalid_grant"})";
  response.status = 400;
  EXPECT_EQ(read_token(response, "the server", WallTime{1}).error().code, Code::unauthorized);
  response.status = 503;
  EXPECT_EQ(read_token(response, "the server", WallTime{1}).error().code, Code::unavailable);
}

TEST(PendingOrders, AreShownAsFailedForAWhile) {
  HandClock clock;
  PendingOrders pending(clock);
  pending.accepted({.machine = "fast-1", .external = "z/a", .place = "z", .operation = "op"});
  pending.accepted({.machine = "fast-2", .external = "z/b", .place = "z", .operation = "op2"});
  EXPECT_EQ(pending.missing({"fast-2"}, 10).size(), 1u);
  pending.failed(*pending.find("fast-1"), {RefusalKind::quota, "no more"});
  EXPECT_FALSE(pending.find("fast-1"));
  ASSERT_EQ(pending.failures().size(), 1u);
  EXPECT_EQ(pending.failures()[0].failed, RefusalKind::quota);
  EXPECT_TRUE(pending.failures()[0].ended);
  clock.wall_ns += seconds(31).ns;
  EXPECT_TRUE(pending.failures().empty());
}

TEST(PendingOrders, DeletionsAreRepeatedAfterAWhile) {
  HandClock clock;
  PendingOrders pending(clock);
  EXPECT_TRUE(pending.may_delete("z/a"));
  EXPECT_FALSE(pending.may_delete("z/a"));
  EXPECT_TRUE(pending.may_delete("z/b"));
  pending.delete_refused("z/a");
  EXPECT_TRUE(pending.may_delete("z/a")) << "it was not accepted";
  clock.wall_ns += seconds(31).ns;
  EXPECT_TRUE(pending.may_delete("z/b")) << "it is still there";
}

}  // namespace
}  // namespace billow::pool
