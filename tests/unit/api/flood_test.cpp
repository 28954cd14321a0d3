// What the API decides from a request's head, and what it does not do on the loop.
#include "base/crypto.h"
#include "base/limits.h"
#include "tests/unit/api/fake_host.h"

namespace billow::api {
namespace {

struct FloodTest : ApiTest {
  net::Request head(net::Method method, std::string_view target) {
    net::Request request;
    request.method = method;
    EXPECT_TRUE(net::parse_target(target, request));
    if (!token.empty())
      request.headers.set("Authorization", "Bearer " + token);
    request.peer = "10.0.0.7:4711";
    return request;
  }
};

TEST_F(FloodTest, BodiesAreRefusedByTheHeadAlone) {
  token.clear();
  const auto refused = api.body_policy(head(net::Method::post, "/v1/jobs"));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::unauthorized);
  for (const char* open : {"/v1/session", "/v1/nothing"}) {
    const auto plan = api.body_policy(head(net::Method::post, open));
    ASSERT_TRUE(plan);
    EXPECT_EQ(plan->bytes_max, limits::http_unknown_body_bytes_max) << open;
  }
  token = "bw_wrong";
  EXPECT_FALSE(api.body_policy(head(net::Method::post, "/v1/jobs")));
  token = "bw_admin";
  const auto plan = api.body_policy(head(net::Method::post, "/v1/jobs"));
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->bytes_max, limits::api_body_bytes_max);
  EXPECT_FALSE(api.body_policy(head(net::Method::post, "/v1/join")))
      << "a token of the wrong scope is refused before its body, too";
}

TEST_F(FloodTest, CallersAreUsersWithTheirQuotas) {
  const net::Caller admin = api.identify(head(net::Method::get, "/v1/jobs"));
  EXPECT_EQ(admin.kind, net::CallerKind::user);
  ASSERT_TRUE(admin.share);
  EXPECT_EQ(admin.share->connections_max, limits::http_connections_max) << "no default for admins";
  token = "bw_wrong";
  EXPECT_EQ(api.identify(head(net::Method::get, "/v1/jobs")).kind, net::CallerKind::stranger);
  token = "bw_admin";
  host.execute(AddUser{.name = "bob", .role = roles::member}, {}, {});
  host.execute(CreateToken{.name = "t", .hash = sha256_hex("bw_bob"), .user = "bob"}, {}, {});
  const auto set = ask(net::Method::put, "/v1/quotas",
                       R"({"scope":"user","of":"bob","kind":"requests-per-s","limit":7})");
  EXPECT_EQ(set.status, 200) << set.body;
  token = "bw_bob";
  EXPECT_EQ(api.identify(head(net::Method::get, "/v1/jobs")).share->requests_per_s, 7);
}

TEST_F(FloodTest, LargeBodiesAreParsedByAWorkerWithTheSameAnswer) {
  const auto small = ask(net::Method::post, "/v1/jobs", R"({"nonsense":1})");
  const auto large =
      ask(net::Method::post, "/v1/jobs",
          R"({"nonsense":")" + std::string(limits::json_on_loop_bytes_max + 1, 'x') + R"("})");
  EXPECT_EQ(small.status, 400);
  EXPECT_EQ(large.status, 400);
  EXPECT_EQ(json(small)["detail"], json(large)["detail"]);
  const auto broken =
      ask(net::Method::post, "/v1/jobs", std::string(limits::json_on_loop_bytes_max + 1, '['));
  EXPECT_EQ(broken.status, 400);
}

TEST_F(FloodTest, AListingGoesOnWhereItsLastTurnEnded) {
  SubmitJob array;
  array.spec.argv = {"true"};
  array.spec.resources.gpus = 4;
  array.spec.resources.share = {1000, 0};
  array.spec.array = ArraySpec{.first = 0, .last = limits::jobs_walked_per_turn * 3, .step = 1};
  array.user = host.state().users.begin()->first;
  host.execute(std::move(array), {"user:ana", "r"}, [](Result<std::vector<Event>> events) {
    ASSERT_TRUE(events) << events.error().message;
  });
  const auto answer = get("/v1/jobs?label=a=b&expand=1");
  EXPECT_EQ(answer.status, 200);
  EXPECT_TRUE(json(answer)["jobs"].items().empty());
  const auto elements = get("/v1/jobs?expand=1&limit=5");
  EXPECT_EQ(json(elements)["jobs"].items().size(), 5u);
  const auto by_number = get("/v1/jobs?array=1&limit=1000");
  EXPECT_EQ(json(by_number)["jobs"].items().size(), 1000u);
}

}  // namespace
}  // namespace billow::api
