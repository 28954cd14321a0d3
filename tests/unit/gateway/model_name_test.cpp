// Finding the model in a body without parsing it: the same answer as a parser's, on every text that
// is JSON.
#include <gtest/gtest.h>

#include "base/json.h"
#include "gateway/pure/model_name.h"

namespace billow::gateway {
namespace {

TEST(ModelName, IsFoundWhereverItStands) {
  EXPECT_EQ(model_name(R"({"model":"llama"})"), "llama");
  EXPECT_EQ(model_name(R"( { "messages" : [{"content":"{\"model\":\"no\"}"}], "model" : "a" } )"),
            "a");
  EXPECT_EQ(model_name(R"({"model":"first","x":[1,{"model":"inner"}],"model":"last"})"), "last");
  EXPECT_EQ(model_name(R"({"mod\u0065l":"escaped"})"), "escaped");
  EXPECT_EQ(model_name(R"({"\u006D\u006f\u0064\u0065\u006c":"all","\n":1,"\u006":2})"), "all");
  EXPECT_EQ(model_name(R"({"\u016dodel":"no","\u006dodel\u0000":"no","mode\l":"no"})"),
            std::nullopt);
  EXPECT_EQ(model_name(R"({"a":-1.5e3,"b":true,"c":null,"d":"]}\\","model":"m"})"), "m");
}

TEST(ModelName, IsNotFoundWhereThereIsNone) {
  for (const char* body :
       {"", "{", "{}", "[]", "null", R"("model")", R"({"model":7})", R"({"model":null})",
        R"({"model":"a","model":{}})", R"({"x":{"model":"a"}})", R"({"model":"a")",
        R"({"model":"a)", R"({"model")", R"({model:"a"})", R"({"model":"a",})", R"({"x":]})",
        R"({"x":1 "model":"a"})"})
    EXPECT_EQ(model_name(body), std::nullopt) << body;
  EXPECT_EQ(model_name("{\"model\":\"" + std::string(1000, 'x') + "\"}"), std::nullopt);
}

// Texts made from pieces that matter, most of them not JSON.
TEST(ModelName, AgreesWithAParser) {
  const std::vector<std::string> pieces = {
      "{",        "}",     "[", "]", ",",    ":",        "\"model\"",       "\"a\"",
      "\"\\\"\"", "\"{\"", "1", " ", "null", "\"\\\\\"", "\"mod\\u0065l\"", "\"\\n\""};
  std::uint64_t seed = 88172645463325252u;
  std::size_t parsed = 0;
  for (int round = 0; round < 300'000; ++round) {
    std::string body = round % 2 ? "{\"model\":\"m\"" : "{";
    const auto next = [&] {
      seed ^= seed << 13;
      seed ^= seed >> 7;
      seed ^= seed << 17;
      return seed;
    };
    for (std::uint64_t left = next() % 9; left > 0; --left)
      body += pieces[next() % pieces.size()];
    body += "}";
    const auto found = model_name(body);
    const auto json = parse_json(body);
    if (!json)
      continue;
    ++parsed;
    const Json& model = (*json)["model"];
    EXPECT_EQ(found,
              model.is_string() ? std::optional<std::string>(model.str_or("")) : std::nullopt)
        << body;
  }
  EXPECT_GT(parsed, 1000u);
}

}  // namespace
}  // namespace billow::gateway
