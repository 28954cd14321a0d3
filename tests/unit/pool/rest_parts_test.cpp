// The parts that provider files are made of: JSON pointers, templates, the checker, names and
// credentials.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <stdlib.h>

#include "pool/kinds.h"
#include "pool/rest/json_path.h"
#include "pool/rest/names.h"
#include "pool/rest/offers.h"
#include "pool/rest/pacing.h"
#include "pool/rest/providers.h"
#include "pool/rest/rest_pool.h"
#include "pool/rest/shipped.h"
#include "pool/rest/start.h"
#include "pool/rest/template.h"

namespace billow::pool::rest {
namespace {

Json json(std::string_view text) {
  auto parsed = parse_json(text);
  EXPECT_TRUE(parsed) << text;
  return parsed ? *parsed : Json();
}

std::vector<std::string> found(std::string_view path, const Json& in) {
  const auto parsed = JsonPath::parse(path);
  EXPECT_TRUE(parsed) << path;
  std::vector<std::string> out;
  for (const Json* value : parsed->all(in))
    out.push_back(scalar_text(*value));
  return out;
}

using Texts = std::vector<std::string>;

TEST(JsonPath, FollowsPointersAndEveryItemOfAStar) {
  const Json doc = json(R"({"data":[{"name":"a","n":[1,2]},{"name":"b","n":[3]}],"a/b":{"~":7},
                            "map":{"x":{"v":1},"y":{"v":2}},"none":null})");
  EXPECT_EQ(found("/data/0/name", doc), Texts{"a"});
  EXPECT_EQ(found("/data/*/name", doc), (Texts{"a", "b"}));
  EXPECT_EQ(found("/data/*/n/*", doc), (Texts{"1", "2", "3"}));
  EXPECT_EQ(found("/map/*/v", doc), (Texts{"1", "2"})) << "the members of an object";
  EXPECT_EQ(found("/a~1b/~0", doc), Texts{"7"});
  EXPECT_EQ(found("/data/7/name", doc), Texts{});
  EXPECT_EQ(found("/data/name", doc), Texts{});
  EXPECT_EQ(found("", Json("whole")), Texts{"whole"});
  EXPECT_FALSE(JsonPath::parse("data"));
  EXPECT_FALSE(JsonPath::parse("/a~2"));
  EXPECT_TRUE(JsonPath::parse("/none")->first(doc).is_null());
}

TEST(JsonPath, TellsAnEmptyListFromAnAnswerWithoutOne) {
  const JsonPath list = *JsonPath::parse("/data/*");
  EXPECT_TRUE(list.has_list(json(R"({"data":[]})")));
  EXPECT_TRUE(list.has_list(json(R"({"data":null})")));
  EXPECT_TRUE(list.has_list(json(R"({"data":{}})")));
  EXPECT_FALSE(list.has_list(json(R"({})")));
  EXPECT_FALSE(list.has_list(json(R"({"data":"soon"})")));
  EXPECT_FALSE(list.has_list(json(R"([])")));
  EXPECT_FALSE(list.has_list(Json("<html>")));
  EXPECT_TRUE(JsonPath::parse("/*")->has_list(json("[]")));
  EXPECT_FALSE(JsonPath::parse("/*")->has_list(Json("<html>")));
  EXPECT_FALSE(JsonPath::parse("/*")->has_list(Json()));
}

TEST(Template, PutsValuesIntoTextsAndUrls) {
  const Values values = {{"name", "a b/c"}, {"id", "7"}};
  EXPECT_EQ(*Template::parse("x-{name}-{{{id}}}")->text(values), "x-a b/c-{7}");
  EXPECT_EQ(*Template::parse("/v/{name}")->text(values, Template::Escape::url), "/v/a%20b%2Fc");
  EXPECT_FALSE(Template::parse("{other}")->text(values)) << "a value is missing";
  EXPECT_EQ(*Template::parse("a{other?}b")->text(values), "ab");
  for (const char* bad : {"{", "}", "{name", "name}", "{}", "{Name}", "{n:int}", "x{n:number}"})
    EXPECT_FALSE(Template::parse(bad)) << bad;
}

TEST(Template, FillsDocumentsWithTypedAndOptionalValues) {
  const Json body = json(R"({"n":"{gpus:number}","price":"{bid:number?}","spot":"{spot:bool}",
      "keys":["{key?}"],"tags":["a","x-{id}"],"image":{"family":"{image?}"},"fixed":1,"none":[]})");
  const auto filled = fill(body, {{"gpus", "8"}, {"spot", "false"}, {"id", "7"}});
  ASSERT_TRUE(filled);
  EXPECT_EQ(filled->dump(), R"({"n":8,"spot":false,"tags":["a","x-7"],"fixed":1,"none":[]})");
  const auto all = fill(body, {{"gpus", "8"},
                               {"spot", "true"},
                               {"id", "7"},
                               {"bid", "0.25"},
                               {"key", "k"},
                               {"image", "i"}});
  ASSERT_TRUE(all);
  EXPECT_EQ(all->dump(), R"({"n":8,"price":0.25,"spot":true,"keys":["k"],"tags":["a","x-7"],)"
                         R"("image":{"family":"i"},"fixed":1,"none":[]})");
  EXPECT_FALSE(fill(body, {{"gpus", "many"}, {"spot", "true"}, {"id", "7"}}));
  EXPECT_FALSE(fill(body, {{"spot", "true"}, {"id", "7"}}));
}

RC_GTEST_PROP(Template, AnyValueComesOutOfADocumentUnchanged, ()) {
  const auto value = *rc::gen::nonEmpty(rc::gen::string<std::string>());
  const auto filled = fill(json(R"({"v":"{v}"})"), {{"v", value}});
  RC_ASSERT(filled.has_value());
  RC_ASSERT((*filled)["v"].str_or("") == value);
}

constexpr const char* minimal = R"(name = "acme"
title = "Acme"
address = "https://api.acme.example/v1"
[auth]
key = "ACME_KEY"
[create]
method = "POST"
path = "/machines"
body = { name = "{name}", boot = "{user_data}" }
[[list]]
path = "/machines"
items = "/machines/*"
[machine]
id = "/id"
name = "/name"
state = "/state"
[states]
here = ["up"]
[delete]
method = "DELETE"
path = "/machines/{id}"
[errors]
text = "/message"
[[error]]
text = "sold out"
kind = "capacity"
)";

std::string problems_of(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  const auto read = read_provider(text, "acme.toml");
  return read ? "" : read.error().message;
}

TEST(ProviderFile, NamesLineAndKeyOfEachProblem) {
  ASSERT_TRUE(read_provider(minimal, "acme.toml"));
  const std::pair<std::pair<const char*, const char*>, const char*> cases[] = {
      {{"title =", "titel ="}, "acme.toml:2: titel: is not a key of this table; is it title?"},
      {{"title = \"Acme\"", "title = 7"}, "acme.toml:2: title: must be a string"},
      {{"https://", "http://"},
       "acme.toml:3: address: must be https: every request carries the credential"},
      {{"key = \"ACME_KEY\"", ""}, "acme.toml:4: auth.key: is missing"},
      {{"key = \"ACME_KEY\"", "key = \"K\"\nkind = \"basic\""},
       "auth.kind: \"basic\" is not one of bearer, header, oauth2, hmac-sha256"},
      {{"{name}", "{nmae}"}, "acme.toml:9: create.body: {nmae} has no value here; is it {name}?"},
      {{"\"{name}\"", "\"x\""},
       "acme.toml:9: create.body: has no {name}: a machine without it could not be found again"},
      {{"{user_data}", "none"}, "create.body: has no {user_data} or {script}"},
      {{"{user_data}", "{user_data"}, "acme.toml:9: create.body: { has no matching }"},
      {{"/machines/*", "machines"},
       "acme.toml:12: list.items: \"machines\" is not a JSON pointer: it must begin with /"},
      {{"{id}", "all"}, "acme.toml:21: delete.path: neither path nor body has {id}"},
      {{"here = [\"up\"]", "here = [\"up\"]\ngone = [\"UP\"]"}, "states.gone: \"UP\" is in two"},
      {{"here = [\"up\"]", "here = []"}, "states: no state is in `here`"},
      {{"kind = \"capacity\"", "kind = \"sold\""}, "error.kind: \"sold\" is not one of no_answer"},
      {{"kind = \"capacity\"", "kind = \"quota\""}, "no rule says what an answer without capacity"},
      {{"text = \"sold out\"", ""}, "error: needs a status, a code or a text to match"},
      {{"method = \"POST\"", "method = \"GET\""}, "creating a machine is not a GET request"},
      {{"path = \"/machines\"", "path = \"/machines?x=1\""}, "must not have a query"},
      {{"name = \"acme\"", "name = \"acme\"\nlist_lag_s = 1.5"},
       "acme.toml:2: list_lag_s: must be a whole number between 0 and 3600"},
      {{"items = \"/machines/*\"", "items = \"/m/*\"\npaging = { kind = \"page\" }"},
       "list.paging.parameter: is missing"},
      {{"name = \"acme\"", "name = \"acme"}, "acme.toml:1:"},
  };
  for (const auto& [change, said] : cases) {
    const std::string problems = problems_of(minimal, change.first, change.second);
    EXPECT_NE(problems.find(said), std::string::npos) << change.second << " → " << problems;
  }
}

TEST(ProviderFile, EveryShippedFileIsValidAndNamedLikeItsFile) {
  std::set<std::string> names;
  for (const auto& [name, text] : shipped_providers()) {
    const auto provider = find_provider(std::string(name), "");
    ASSERT_TRUE(provider) << provider.error().message;
    EXPECT_EQ(provider->name, name);
    EXPECT_FALSE(provider->offers.empty()) << name;
    EXPECT_TRUE(provider->account) << name;
    EXPECT_TRUE(text.starts_with("# ")) << name << ": its source and date";
    EXPECT_NE(text.find("Checked on 20"), std::string::npos) << name;
    names.insert(provider->name);
  }
  EXPECT_EQ(names, (std::set<std::string>{"crusoe", "digitalocean", "hyperstack", "lambda",
                                          "runpod", "shadeform", "vast", "verda", "vultr"}));
  const auto unknown = find_provider("lamda", "");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().hint, "is it lambda?");
  EXPECT_FALSE(find_provider("/nowhere/acme.toml", ""));
}

TEST(RestKind, ChecksOptionsAgainstTheProvidersFile) {
  billow::Pool pool;
  pool.name = "cloud";
  pool.kind = "rest";
  EXPECT_FALSE(complete_new_pool(pool)) << "no provider";
  pool.options = {{"provider", "lambda"}, {"region", "us-east-1"}};
  EXPECT_TRUE(complete_new_pool(pool));
  pool.options["flavor"] = "x";
  const Status unknown = complete_new_pool(pool);
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().message, "Lambda has no option \"flavor\"");
  EXPECT_NE(unknown.error().hint.find("image"), std::string::npos);
  pool.options = {{"provider", "runpod"}, {"disk-gb", "500"}};
  EXPECT_TRUE(complete_new_pool(pool));
  pool.options["disk-gb"] = "1T";
  const Status size = complete_new_pool(pool);
  ASSERT_FALSE(size) << "it would be 100";
  EXPECT_EQ(size.error().message, "disk-gb, in GB without a unit: not a whole number: \"1T\"");
}

TEST(RestKind, OrdersOnlyWhatThePoolAdmits) {
  billow::Pool pool;
  const MachineOffer offer = {.instance = "x", .region = "us-east-1", .gpu_type = "H100"};
  MachineOffer spot = offer;
  spot.spot = true;
  EXPECT_TRUE(is_wanted(pool, offer));
  EXPECT_FALSE(is_wanted(pool, spot)) << "without --spot";
  pool.spot = true;
  EXPECT_TRUE(is_wanted(pool, spot));
  pool.options = {{"regions", "us-west-1, US-EAST-1"}, {"gpu_types", "l4,h100"}};
  EXPECT_TRUE(is_wanted(pool, offer));
  pool.options["regions"] = "us-west-1";
  EXPECT_FALSE(is_wanted(pool, offer));
  pool.options = {{"gpu_types", "L4"}};
  EXPECT_FALSE(is_wanted(pool, offer));
}

TEST(MachineNames, AreFoundAgainAndFitTheProvider) {
  const MachineNames plain("1a2b3c4d", "fast", 63);
  EXPECT_EQ(plain.provider_name("fast-7"), "billow-1a2b3c4d-fast-7");
  EXPECT_EQ(plain.machine_name("billow-1a2b3c4d-fast-7"), "fast-7");
  for (const char* other : {"billow-1a2b3c4d-fast-", "billow-1a2b3c4d-fast-x7",
                            "billow-1a2b3c4d-fast-07", "billow-99999999-fast-7", "fast-7", ""})
    EXPECT_EQ(plain.machine_name(other), "") << other;
  const MachineNames odd("1a2b3c4d", "My.Pool_1", 63);
  const std::string name = odd.provider_name("My.Pool_1-12");
  EXPECT_EQ(odd.machine_name(name), "My.Pool_1-12");
  for (const char c : name)
    EXPECT_TRUE((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-') << name;
  const MachineNames longest("1a2b3c4d", std::string(32, 'p'), 32);
  EXPECT_LE(longest.provider_name(std::string(32, 'p') + "-1000000000").size(), 32u);
  EXPECT_EQ(MachineNames("other", std::string(32, 'p'), 32)
                .machine_name(longest.provider_name(std::string(32, 'p') + "-1")),
            "");
}

TEST(Credentials, ComeFromThePoolOrTheEnvironment) {
  const Auth one = {.kind = AuthKind::bearer, .key = "BILLOW_T_KEY"};
  const Auth two = {.kind = AuthKind::oauth2, .key = "BILLOW_T_ID", .secret = "BILLOW_T_SECRET"};
  EXPECT_EQ(*credential_value(one, " abc\n", "BILLOW_T_KEY"), "abc");
  EXPECT_EQ(*credential_value(one, "BILLOW_T_KEY=abc\n", "BILLOW_T_KEY"), "abc");
  EXPECT_EQ(*credential_value(two, "id:se:cret", "BILLOW_T_ID"), "id");
  EXPECT_EQ(*credential_value(two, "id:se:cret", "BILLOW_T_SECRET"), "se:cret");
  const std::string lines = "BILLOW_T_SECRET=s\nBILLOW_T_ID = i\nBILLOW_T_ID=i\n";
  EXPECT_EQ(*credential_value(two, lines, "BILLOW_T_ID"), "i");
  EXPECT_EQ(*credential_value(two, lines, "BILLOW_T_SECRET"), "s");
  ::unsetenv("BILLOW_T_KEY");
  const auto missing = credential_value(one, "", "BILLOW_T_KEY");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().message, "BILLOW_T_KEY is not set");
  ::setenv("BILLOW_T_KEY", "from-env", 1);
  EXPECT_EQ(*credential_value(one, "", "BILLOW_T_KEY"), "from-env");
  ::unsetenv("BILLOW_T_KEY");
}

TEST(Pacer, SpreadsCreationsOfOneKeyAndRefusesToWaitTooLong) {
  const Pacer pacer("test/pacer", {.requests_per_s = 1000, .creates_per_s = 0.001});
  EXPECT_TRUE(pacer.wait(true, seconds(1)));
  EXPECT_FALSE(pacer.wait(true, seconds(1))) << "the next creation is due in 1000 s";
  EXPECT_TRUE(pacer.wait(false, seconds(1))) << "other requests are";
  const Pacer same("test/pacer", {.requests_per_s = 1000, .creates_per_s = 0.001});
  EXPECT_FALSE(same.wait(true, seconds(1))) << "another pool with the same key";
  same.pause(seconds(100));
  EXPECT_FALSE(pacer.wait(false, seconds(1)));
}

TEST(StartScript, IsTheSameForTheSameOrderAndFitsAContainersArguments) {
  Order order;
  order.machine.name = "fast-7";
  order.head_url = "https://head.example.com:7070";
  order.token = "bwj_" + std::string(40, 's') + "." + std::string(64, 'f');
  order.authority = "-----BEGIN CERTIFICATE-----\n" + std::string(900, 'c') + "\n-----END";
  order.program_sha256 = std::string(64, '0');
  billow::Pool pool;
  pool.labels = {{"zone", "a'b"}};
  for (const BootKind kind : {BootKind::cloud_init, BootKind::script, BootKind::container}) {
    const std::string script = start_script(order, pool, kind);
    EXPECT_EQ(script, start_script(order, pool, kind));
    EXPECT_NE(script.find(order.token), std::string::npos);
    EXPECT_EQ(script.find("--insecure"), std::string::npos);
  }
  EXPECT_LE(start_script(order, pool, BootKind::container).size(), 4000u) << "Vast.ai's limit";
}

}  // namespace
}  // namespace billow::pool::rest
