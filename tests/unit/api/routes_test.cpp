// Routes answered without a socket: who is refused and how, what listings, costs and metrics say.
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "api/pages/live_readings.h"
#include "base/text.h"
#include "core/ledger/catalogue.h"
#include "tests/unit/api/fake_host.h"
#include "view/rows.h"

namespace billow::api {
namespace {

TEST_F(ApiTest, WithoutATokenTheAnswerSaysHowToSendOne) {
  token.clear();
  const auto answer = get("/v1/jobs");
  EXPECT_EQ(answer.status, 401);
  EXPECT_NE(json(answer)["hint"].str_or("").find("Authorization: Bearer"), std::string::npos);
  token = "bw_wrong";
  EXPECT_EQ(get("/v1/jobs").status, 401);
}

TEST_F(ApiTest, AnUnknownPathAndAnUnsupportedMethodDiffer) {
  EXPECT_EQ(get("/v1/nothing").status, 404);
  const auto wrong = ask(net::Method::del, "/v1/jobs");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(json(wrong)["detail"].str_or(""), "/v1/jobs does not support DELETE");
}

TEST_F(ApiTest, AJobThatDoesNotExistAndAWrongNumberDiffer) {
  EXPECT_EQ(get("/v1/jobs/99").status, 404);
  EXPECT_EQ(get("/v1/jobs/abc").status, 400);
  EXPECT_EQ(get("/v1/jobs/99.1").status, 404);
}

TEST_F(ApiTest, ACursorOfAnotherListingIsAnError) {
  const auto answer = get("/v1/jobs?cursor=n12");
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(json(answer)["detail"].str_or(""),
            "invalid cursor: it does not belong to this listing");
  EXPECT_EQ(get("/v1/jobs?limit=0").status, 400);
  EXPECT_EQ(get("/v1/jobs?state=fast").status, 400);
  EXPECT_EQ(get("/v1/jobs?label=novalue").status, 400);
}

TEST_F(ApiTest, PagesFollowEachOtherWithoutGapsOrRepeats) {
  for (int i = 0; i < 7; ++i)
    host.rig.submit(i < 2 ? 1 : 4);
  std::vector<std::uint64_t> seen;
  std::string next;
  for (int page = 0; page < 10; ++page) {
    const Json answer = json(get("/v1/jobs?limit=3" + (next.empty() ? "" : "&cursor=" + next)));
    for (const Json& job : answer["jobs"].items())
      seen.push_back(job["id"].uint_or(0));
    next = answer["next"].str_or("");
    if (next.empty())
      break;
  }
  EXPECT_EQ(seen.size(), 7u);
  EXPECT_TRUE(std::is_sorted(seen.rbegin(), seen.rend()));
  EXPECT_EQ(std::set(seen.begin(), seen.end()).size(), 7u);
}

// The list, the job's own document and the endpoint's agree, whatever the wall clock says.
TEST_F(ApiTest, CostsInListAndDocumentsAgreeWhenTheWallClockIsSetAhead) {
  const JobId id = host.rig.submit();
  host.rig.begin(id);
  host.rig.pass_time(seconds(1000));
  host.rig.wall = host.rig.wall + hours(3);
  const std::int64_t listed =
      json(get("/v1/jobs"))["jobs"].items().at(0)["cost_nano_usd"].int_or(-1);
  const std::int64_t described =
      json(get("/v1/jobs/" + std::to_string(id.value)))["cost_nano_usd"].int_or(-1);
  const std::int64_t by_lease = json(get("/v1/jobs/" + std::to_string(id.value) + "/cost"))
                                    .at("total", "charge_nano_usd")
                                    .int_or(-1);
  EXPECT_EQ(listed, 1000 * 1'000'003);
  EXPECT_EQ(described, listed);
  EXPECT_EQ(by_lease, listed) << "the books";
}

// A row holds thousandths: two requests a second, one start in its ten seconds, 3.60 $ an hour.
TEST_F(ApiTest, TheSumsOfAnEndpointAreThoseOfItsSeries) {
  host.rig.wall = system_clock().wall();  // how finely a time is kept depends on its age
  const auto deployed =
      ask(net::Method::post, "/v1/endpoints", R"({"name":"chat","spec":{"argv":["serve"]}})");
  ASSERT_EQ(deployed.status, 201) << deployed.body;
  GpuSampleRow row;
  row.fill(std::nan(""));
  row[endpoint_requests] = 2000;
  row[endpoint_errors] = 0;
  row[endpoint_cold_starts] = 1000;
  row[endpoint_spend] = 3600;
  for (const int ago : {40, 30, 20})
    ASSERT_TRUE(host.kept_history().add(host.rig.wall - seconds(ago), {{"endpoint chat", row}}));
  // Looking further back finds nothing more.
  for (const int span_s : {600, 6 * 3600, 30 * 86400}) {
    const Json series = json(get(fmt::format("/v1/endpoints/chat/series?span_s={}", span_s)));
    EXPECT_NEAR(series["requests"].double_or(0), 60, 0.1) << span_s;
    EXPECT_NEAR(series["cold_starts"].double_or(0), 3, 0.01) << span_s;
    EXPECT_NEAR(series["usd_per_1000"].double_or(0), 0.5, 0.01) << span_s;
  }
}

TEST_F(ApiTest, AFinishedJobIsReadFromTheStore) {
  const JobId id = host.rig.submit();
  host.rig.begin(id);
  host.rig.pass_time(seconds(10));
  host.rig.end(id, 2);
  Batch batch = store_test::batch_of(1);
  batch.jobs = {view::job_row(host.state(), host.rig.finished.at(0))};
  host.store(std::move(batch));
  const Json document = json(get("/v1/jobs/" + std::to_string(id.value)));
  EXPECT_EQ(document["state"].str_or(""), "failed");
  EXPECT_EQ(document["exit_code"].int_or(0), 2);
  EXPECT_EQ(document.find("form"), nullptr) << "the record stays in the store";
  const Json listed = json(get("/v1/jobs?state=failed"));
  ASSERT_EQ(listed["jobs"].size(), 1u);
  EXPECT_EQ(listed["jobs"].items().at(0)["cost_nano_usd"], document["cost_nano_usd"]);
}

TEST_F(ApiTest, ASearchCoversLiveAndEndedJobs) {
  SubmitJob named = host.rig.job(1);
  named.spec.name = "sweep-a";
  named.spec.labels = {{"team", "vision"}};
  const JobId ended = host.rig.submit(named);
  host.rig.begin(ended);
  host.rig.pass_time(seconds(10));
  host.rig.end(ended, 2);
  Batch batch = store_test::batch_of(1);
  batch.jobs = {view::job_row(host.state(), host.rig.finished.at(0))};
  host.store(std::move(batch));
  named.spec.name = "sweep-b";
  const JobId live = host.rig.submit(named);
  const JobId other = host.rig.submit();
  const auto found = [&](const std::string& search) {
    std::vector<std::uint64_t> ids;
    const Json answer = json(get("/v1/jobs?state=all&search=" + search));
    for (const Json& job : answer["jobs"].items())
      ids.push_back(job["id"].uint_or(0));
    return ids;
  };
  using Ids = std::vector<std::uint64_t>;
  EXPECT_EQ(found("sweep"), (Ids{live.value, ended.value}));
  EXPECT_EQ(found("sweep+train.py"), (Ids{live.value, ended.value})) << "the command too";
  EXPECT_EQ(found("label:team=vision"), (Ids{live.value, ended.value}));
  EXPECT_EQ(found("sweep+state:failed"), Ids{ended.value});
  EXPECT_EQ(found("user:ana+python"), (Ids{other.value, live.value, ended.value}));
  EXPECT_EQ(found("sweep-b"), Ids{live.value});
  EXPECT_EQ(found("nothing"), Ids{});
  EXPECT_EQ(found(std::to_string(other.value)), Ids{other.value});
  EXPECT_EQ(found("node:n1+sweep+state:failed"), Ids{ended.value});
  EXPECT_EQ(get("/v1/jobs?search=user:nobody").status, 404);
  EXPECT_EQ(get("/v1/jobs?sort=colour").status, 400);
  // Sorted, and continued after the last one seen.
  const Json first = json(get("/v1/jobs?state=all&sort=-cost&limit=1"));
  EXPECT_EQ(first["jobs"].items().at(0)["id"].uint_or(0), ended.value) << "the only one that cost";
  const std::string next(first["next"].str_or(""));
  EXPECT_EQ(next, std::to_string(ended.value));
  EXPECT_EQ(json(get("/v1/jobs?state=all&sort=-cost&before=" + next))["jobs"].size(), 2u);
  const std::int64_t ms = host.now().ns / 1'000'000;
  EXPECT_EQ(json(get(fmt::format("/v1/jobs?ended_after={}", ms - 1000)))["jobs"].size(), 1u);
  EXPECT_EQ(json(get(fmt::format("/v1/jobs?ended_after={}", ms + 1000)))["jobs"].size(), 0u);
}

TEST_F(ApiTest, TheTimelineShowsWhoHeldEachCard) {
  SubmitJob named = host.rig.job(2);
  named.spec.name = "first";
  const JobId ended = host.rig.submit(named);
  host.rig.begin(ended);
  host.rig.pass_time(seconds(600));
  host.rig.end(ended, 0);
  Batch batch = store_test::batch_of(1);
  batch.jobs = {view::job_row(host.state(), host.rig.finished.at(0))};
  for (const auto& lease : host.rig.leases)
    batch.leases.push_back(view::lease_row(lease));
  host.store(std::move(batch));
  host.rig.pass_time(seconds(60));
  const JobId live = host.rig.submit();
  host.rig.begin(live);
  host.rig.pass_time(seconds(60));
  const Json answer = json(get("/v1/timeline"));
  ASSERT_EQ(answer["nodes"].size(), 1u);
  const Json& gpus = answer["nodes"].items().at(0)["gpus"];
  ASSERT_EQ(gpus.size(), 4u);
  std::size_t runs = 0, idle = 0;
  for (const Json& gpu : gpus.items()) {
    std::int64_t at = 0;
    for (const Json& block : gpu["blocks"].items()) {
      EXPECT_GE(block["from"].int_or(0), at) << "in order, not over each other";
      EXPECT_GT(block["to"].int_or(0), block["from"].int_or(0));
      at = block["to"].int_or(0);
      runs += block["kind"].str_or("") == "run";
      idle += block["kind"].str_or("") == "idle";
      if (block["job"].str_or("") == std::to_string(ended.value)) {
        EXPECT_EQ(block["name"].str_or(""), "first");
        EXPECT_EQ(block["user"].str_or(""), "ana");
        EXPECT_EQ(block["to"].int_or(0) - block["from"].int_or(0), 600'000);
      }
    }
  }
  EXPECT_EQ(runs, 3u) << "two cards of the first job, one of the second";
  EXPECT_GE(idle, 3u);
  EXPECT_EQ(get("/v1/timeline?node=none").status, 404);
  EXPECT_EQ(get("/v1/timeline?from=5&to=5").status, 400);
  EXPECT_EQ(get("/v1/timeline?from=x").status, 400);
}

// A card that takes no work costs as much as one that waits for it.
TEST_F(ApiTest, TheTimelineSaysWhatDrainedCardsCost) {
  host.rig.must(DrainGpu{host.state().nodes.begin()->first, 1, "hot", {}});
  host.rig.pass_time(seconds(600));
  double drained = 0, idle = 0;
  const Json answer = json(get("/v1/timeline"));
  for (const Json& gpu : answer["nodes"].items().at(0)["gpus"].items())
    for (const Json& block : gpu["blocks"].items()) {
      (block["kind"].str_or("") == "drained" ? drained : idle) += block["waste_usd"].double_or(0);
    }
  const double card_usd =
      static_cast<double>(
          host.state().money.books.node_rate(host.state().nodes.begin()->first).nano_usd_per_s) *
      600 / 4 / 1e9;
  ASSERT_GT(card_usd, 0);
  EXPECT_NEAR(drained, card_usd, card_usd / 100);
  EXPECT_NEAR(idle, 3 * card_usd, card_usd / 100);
}

TEST_F(ApiTest, BuiltInRatesAreMarkedWithTheirDate) {
  const auto rate = [&](std::string_view price_class) {
    const Json answer = json(get("/v1/prices/rates"));
    for (const Json& one : answer["rates"].items())
      if (one["class"].str_or("") == price_class)
        return one;
    return Json();
  };
  EXPECT_TRUE(rate("on-demand")["built_in"].bool_or(false));
  EXPECT_TRUE(price_age_days(rate("on-demand")["prices_of"].str_or(""), host.rig.wall))
      << rate("on-demand").dump();
  host.rig.must(SetPrice{{.of = "gpu:H100", .charge = Rate{1'000'000}}});
  EXPECT_FALSE(rate("on-demand")["built_in"].bool_or(true));
  EXPECT_FALSE(rate("spot")["built_in"].bool_or(true)) << "the price on demand holds for it too";
  EXPECT_FALSE(rate("on-demand").find("prices_of"));
}

TEST_F(ApiTest, DrainedCardsAreNotFree) {
  const auto gpus = [&](const char* name) {
    return json(get("/v1/status")).at("gpus", name).double_or(-1);
  };
  EXPECT_EQ(gpus("free"), 4);
  host.rig.must(DrainGpu{host.state().nodes.begin()->first, 1, "hot", {}});
  EXPECT_EQ(gpus("free"), 3);
  EXPECT_EQ(gpus("drained"), 1);
  host.rig.must(DrainNode{host.state().nodes.begin()->first, "repair"});
  EXPECT_EQ(gpus("free"), 0);
  EXPECT_EQ(gpus("drained"), 4);
  EXPECT_EQ(json(get("/v1/status")).at("nodes", "ready").int_or(-1), 0);
  const std::string metrics = get("/metrics").body;
  EXPECT_NE(metrics.find("\nbillow_gpus_free 0\n"), std::string::npos);
  EXPECT_NE(metrics.find("\nbillow_gpus_drained 4\n"), std::string::npos);
}

// A card that a reservation keeps free says so on the stream, as the counts do.
TEST_F(ApiTest, TheStreamSaysWhichCardsAReservationKeepsFree) {
  host.rig.must(Reserve{.name = "demo",
                        .project = host.state().projects.begin()->second.name,
                        .user = host.state().users.begin()->first,
                        .resources = {.gpus = 2, .share = {.milli = 1000}},
                        .from = host.rig.wall,
                        .until = host.rig.wall + hours(2)});
  const auto stream = std::make_shared<FakeExchange>();
  ASSERT_TRUE(net::parse_target("/v1/live", stream->asked));
  stream->asked.headers.set("Authorization", "Bearer " + token);
  api.handle(stream);
  const std::size_t at = stream->streamed.find("\"gpus\":[[");
  ASSERT_NE(at, std::string::npos) << stream->streamed;
  const std::string gpus = stream->streamed.substr(at, stream->streamed.find("]]", at) - at);
  std::size_t reserved = 0;
  for (std::size_t from = gpus.find(",\"\",1000"); from != std::string::npos;
       from = gpus.find(",\"\",1000", from + 1))
    ++reserved;
  EXPECT_EQ(reserved, 2u) << gpus;
  EXPECT_EQ(json(get("/v1/status")).at("gpus", "reserved").double_or(-1), 2);
}

// Links are sent when their traffic has changed by a fifth: it never stands still.
TEST(LiveReadings, SmallChangesOfTrafficSendNothing) {
  using streams::traffic_step;
  EXPECT_EQ(traffic_step(-1), 0u);
  EXPECT_EQ(traffic_step(1023), 0u);
  EXPECT_NE(traffic_step(1024), 0u);
  for (std::int64_t kib_s = 2000; kib_s < 900'000'000; kib_s = kib_s * 5 / 4) {
    EXPECT_LT(traffic_step(kib_s), traffic_step(kib_s * 4 / 3)) << kib_s;
    EXPECT_LE(traffic_step(kib_s * 101 / 100) - traffic_step(kib_s), 1u) << kib_s;
    EXPECT_LT(traffic_step(kib_s), 256u) << kib_s;
  }
}

TEST_F(ApiTest, AProjectKeepsPresets) {
  const char* path = "/v1/presets/train%20small?project=default";
  const char* spec = R"({"spec":{"argv":["python","train.py"],"name":"small"}})";
  EXPECT_EQ(ask(net::Method::put, "/v1/presets/x", spec).status, 404) << "no project";
  EXPECT_EQ(ask(net::Method::put, path, R"({"spec":{"argv":["a"],"gpu":1}})").status, 400);
  EXPECT_EQ(ask(net::Method::put, "/v1/presets/%20?project=default", spec).status, 400);
  ASSERT_EQ(ask(net::Method::put, path, spec).status, 200);
  const Json list = json(get("/v1/presets"));
  ASSERT_EQ(list["presets"].size(), 1u) << list.dump();
  const Json& preset = list["presets"].items().at(0);
  EXPECT_EQ(preset["name"].str_or(""), "train small");
  EXPECT_EQ(preset["set_by"].str_or(""), "ana");
  EXPECT_EQ(preset.at("spec", "name").str_or(""), "small");
  EXPECT_EQ(json(get("/v1/secrets"))["secrets"].size(), 0u) << "no secret that jobs can ask for";
  EXPECT_EQ(json(get("/v1/presets?project=other"))["presets"].size(), 0u);
  EXPECT_EQ(ask(net::Method::del, path).status, 200);
  EXPECT_EQ(ask(net::Method::del, path).status, 404);
  EXPECT_EQ(json(get("/v1/presets"))["presets"].size(), 0u);
}

TEST_F(ApiTest, APresetIsChangedByWhoSavedItAndByAdmins) {
  const auto join = [&](const std::string& user, const char* role) {
    host.execute(AddUser{.name = user, .role = roles::member}, {}, {});
    host.execute(CreateToken{.name = "t", .hash = sha256_hex("bw_" + user), .user = user}, {}, {});
    const std::string path = "/v1/projects/default/members/" + user;
    EXPECT_EQ(ask(net::Method::put, path.c_str(), fmt::format(R"({{"role":"{}"}})", role)).status,
              200);
  };
  join("bob", "member");
  join("cleo", "member");
  join("vic", "viewer");
  const std::string admin = token;
  const char* path = "/v1/presets/sweep?project=default";
  const char* spec = R"({"spec":{"argv":["a"],"roles":[{"name":"main","argv":["a"],"env":
    {"KEY":"hush"}}]}})";
  token = "bw_bob";
  ASSERT_EQ(ask(net::Method::put, path, spec).status, 200);
  EXPECT_EQ(ask(net::Method::put, path, spec).status, 200) << "one's own";
  EXPECT_NE(get("/v1/presets").body.find("hush"), std::string::npos);
  token = "bw_cleo";
  const auto refused = ask(net::Method::put, path, spec);
  EXPECT_EQ(refused.status, 403);
  EXPECT_NE(json(refused)["detail"].str_or("").find("saved by bob"), std::string::npos);
  EXPECT_EQ(ask(net::Method::del, path).status, 403);
  EXPECT_NE(get("/v1/presets").body.find("hush"), std::string::npos) << "cleo can run it";
  token = "bw_vic";
  const std::string seen = get("/v1/presets").body;
  EXPECT_EQ(seen.find("hush"), std::string::npos) << "a viewer sees names only";
  EXPECT_NE(seen.find("\"KEY\":\"…\""), std::string::npos) << seen;
  token = admin;
  EXPECT_EQ(ask(net::Method::put, "/v1/presets/copy?project=default",
                R"({"spec":{"argv":["a"],"roles":[{"name":"main","argv":["a"],"env":
    {"KEY":"…"}}]}})")
                .status,
            400)
      << "a covered value is no value";
  EXPECT_EQ(ask(net::Method::del, path).status, 200);
}

TEST_F(ApiTest, VariablesOfRolesAreInNoDocument) {
  const auto made = ask(net::Method::post, "/v1/jobs",
                        R"({"spec":{"argv":["a"],"roles":[
    {"name":"one","argv":["a"],"env":{"KEY":"hush"}},{"name":"two","argv":["b"]}]}})");
  ASSERT_EQ(made.status, 201) << made.body;
  const std::string path = fmt::format("/v1/jobs/{}", json(made)["id"].uint_or(0));
  const Json job = json(get(path.c_str()));
  EXPECT_EQ(job.dump().find("hush"), std::string::npos);
  EXPECT_EQ(job.at("spec", "roles").items().at(0).at("env", "KEY").str_or(""), "…");
  EXPECT_EQ(get("/v1/jobs").body.find("hush"), std::string::npos);
  EXPECT_EQ(get((path + "/wait?timeout_s=0").c_str()).body.find("hush"), std::string::npos);
  // Who changes the job and runs it sends back what they saw; the values stay as they were.
  const auto again = ask(net::Method::post, (path + "/rerun").c_str(),
                         Json::object({{"spec", job["spec"]}}).dump());
  ASSERT_LT(again.status, 300) << again.body;
  const Job* second = host.state().find_job(JobId(json(again)["id"].uint_or(0)));
  ASSERT_TRUE(second);
  EXPECT_EQ(second->spec->roles.at(0).env.at("KEY"), "hush");
}

TEST_F(ApiTest, OnlyItsOwnerChangesWhatAStreamFollows) {
  const auto answer = ask(net::Method::post, "/v1/live/none/subscriptions", R"({"logs":[]})");
  EXPECT_EQ(answer.status, 404);
  const auto stream = std::make_shared<FakeExchange>();
  ASSERT_TRUE(net::parse_target("/v1/live", stream->asked));
  stream->asked.headers.set("Authorization", "Bearer " + token);
  api.handle(stream);
  const std::size_t at = stream->streamed.find("{\"stream\":\"");
  ASSERT_NE(at, std::string::npos) << stream->streamed.substr(0, 200);
  const std::string name =
      stream->streamed.substr(at + 11, stream->streamed.find('"', at + 11) - at - 11);
  const std::string path = "/v1/live/" + name + "/subscriptions";
  const JobId id = host.rig.submit();
  const auto set = ask(net::Method::post, path,
                       fmt::format(R"({{"logs":[{{"job":"{}","tail":100}}]}})", id.value));
  EXPECT_EQ(set.status, 200) << set.body;
  EXPECT_EQ(json(set)["logs"].items().at(0)["job"].str_or(""), std::to_string(id.value));
  EXPECT_EQ(ask(net::Method::post, path, R"({"logs":[{"job":"abc"}]})").status, 400);
}

TEST_F(ApiTest, FilesThatDoNotChangeAreNotSentTwice) {
  const auto first = get("/v1/routes");
  EXPECT_EQ(first.status, 200);
  const std::string tag(first.headers.get("ETag"));
  ASSERT_FALSE(tag.empty());
  const auto ask_with = [&](const char* path, const char* header, const std::string& value) {
    auto exchange = std::make_shared<FakeExchange>();
    EXPECT_TRUE(net::parse_target(path, exchange->asked));
    exchange->asked.headers.set(header, value);
    api.handle(exchange);
    return exchange->answer.value_or(net::Response{});
  };
  const auto again = ask_with("/v1/routes", "If-None-Match", tag);
  EXPECT_EQ(again.status, 304);
  EXPECT_TRUE(again.body.empty());
  const auto packed = ask_with("/v1/openapi.json", "Accept-Encoding", "br, gzip");
  EXPECT_EQ(packed.headers.get("Content-Encoding"), "gzip");
  EXPECT_LT(packed.body.size(), get("/v1/openapi.json").body.size() / 4);
  const auto plain = ask_with("/v1/openapi.json", "Accept-Encoding", "gzip;q=0");
  EXPECT_EQ(plain.headers.get("Content-Encoding"), "");
}

TEST_F(ApiTest, AGridThatIsNoNumberIsAnError) {
  for (const char* path : {"/v1/cost?grid=abc", "/v1/cost?grid=", "/v1/cost?grid=-1"}) {
    const auto answer = get(path);
    EXPECT_EQ(answer.status, 400) << path;
    EXPECT_NE(json(answer)["detail"].str_or("").find("grid"), std::string::npos) << path;
  }
  EXPECT_EQ(get("/v1/cost?grid=380").status, 200);
  EXPECT_EQ(get("/v1/cost?format=xml").status, 400);
}

// Every family has its HELP and TYPE once, before its samples, and every sample a family.
TEST_F(ApiTest, MetricsAreWellFormed) {
  const JobId id = host.rig.submit();
  host.rig.begin(id);
  const auto answer = get("/metrics");
  ASSERT_EQ(answer.status, 200);
  std::map<std::string, std::string> types;
  std::set<std::string> helped;
  std::size_t samples = 0;
  for (const std::string& line : split(trim(answer.body), '\n')) {
    const auto words = split(line, ' ');
    if (line.starts_with("# HELP ")) {
      EXPECT_TRUE(helped.insert(words.at(2)).second) << line;
      EXPECT_TRUE(line.ends_with('.')) << line;
      continue;
    }
    if (line.starts_with("# TYPE ")) {
      types[words.at(2)] = words.at(3);
      EXPECT_TRUE(helped.contains(words.at(2))) << line;
      continue;
    }
    ++samples;
    std::string name = line.substr(0, line.find_first_of("{ "));
    for (const char* suffix : {"_bucket", "_sum", "_count"})
      if (const std::string family = name.substr(0, name.rfind('_'));
          name.ends_with(suffix) && types.contains(family) && types[family] == "histogram")
        name = family;
    EXPECT_TRUE(types.contains(name)) << line;
    EXPECT_TRUE(!name.ends_with("_total") || types[name] == "counter") << line;
  }
  EXPECT_GT(samples, 30u);
  EXPECT_TRUE(types.contains("billow_spend_usd_per_second"));
  EXPECT_TRUE(types.contains("billow_idle_usd_per_second"));
}

TEST_F(ApiTest, ATokenForReadingMayNotStop) {
  const JobId id = host.rig.submit();
  host.rig.must(CreateToken{
      .name = "watch", .hash = sha256_hex("bw_read"), .user = "ana", .scope = TokenScope::read});
  token = "bw_read";
  EXPECT_EQ(get("/v1/jobs").status, 200);
  const auto refused = ask(net::Method::post, "/v1/jobs/" + std::to_string(id.value) + "/stop");
  EXPECT_EQ(refused.status, 403);
  EXPECT_NE(json(refused)["detail"].str_or("").find("read-only"), std::string::npos);
}

TEST_F(ApiTest, ABodyIsReadStrictly) {
  EXPECT_EQ(ask(net::Method::post, "/v1/jobs", "[]").status, 400);
  EXPECT_EQ(ask(net::Method::post, "/v1/jobs", R"({"spec":{"argv":["true"],"gpu":1}})").status, 400)
      << "an unknown member";
  EXPECT_EQ(ask(net::Method::post, "/v1/jobs", "{\"spec\":{\"argv\":[\"a\\u0000b\"]}}").status,
            400);
  EXPECT_EQ(ask(net::Method::post, "/v1/jobs", R"({"spec":{"argv":["true"]}})").status, 201);
}

// A value that is taken for its default does something else than what was asked: "force": "yes"
// would be a polite stop, and "rank": "1" a copy from another node.
TEST_F(ApiTest, AValueOfTheWrongTypeIsNotTakenForItsDefault) {
  const std::string job = "/v1/jobs/" + std::to_string(host.rig.submit().value);
  const std::string node = "/v1/nodes/" + host.state().nodes.begin()->second.offer.name;
  const Seq before = host.state().seq;
  for (const auto& [path, body, member] : std::vector<std::array<std::string, 3>>{
           {job + "/stop", R"({"force": "yes"})", "force"},
           {job + "/stop", R"({"forced": true})", "forced"},
           {job + "/signal", R"({"signal": "9"})", "signal"},
           {job + "/suspend", R"({"mode": "hot"})", "mode"},
           {job + "/resume", R"({"on_demand": "yes"})", "on_demand"},
           {job + "/restart", R"({"role": 1})", "role"},
           {job + "/files", R"({"rank": 1.5})", "rank"},
           {node + "/drain", R"({"reclaim": "true"})", "reclaim"},
           {node + "/gpus/0/drain", R"({"reason": 7})", "reason"},
           {"/v1/shutdown", R"({"stop_jobs": 1})", "stop_jobs"}}) {
    const auto answer = ask(net::Method::post, path, body);
    EXPECT_EQ(answer.status, 400) << path << " " << body;
    EXPECT_NE(json(answer)["detail"].str_or("").find(member), std::string::npos)
        << path << ": " << answer.body;
  }
  EXPECT_EQ(host.state().seq, before) << "nothing was done";
}

}  // namespace
}  // namespace billow::api
