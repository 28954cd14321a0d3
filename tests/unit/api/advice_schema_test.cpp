// What /v1/advise accepts and answers is what openapi.json says: every field of a question, and
// every field of answers for serving, training and published rates, with its type.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "advise/ask.h"
#include "api/api.h"
#include "base/clock.h"

namespace billow::api {
namespace {

const Json& document() {
  static const Json d = *openapi_document();
  return d;
}

const Json& resolved(const Json& schema) {
  const auto name = std::string(schema["$ref"].str_or(""));
  constexpr std::string_view place = "#/components/schemas/";
  return name.starts_with(place) ? document()["components"]["schemas"][name.substr(place.size())]
                                 : schema;
}

bool of_type(const Json& value, std::string_view type) {
  return type == "object"    ? value.is_object()
         : type == "array"   ? value.is_array()
         : type == "string"  ? value.is_string()
         : type == "boolean" ? value.is_bool()
         : type == "null"    ? value.is_null()
         : type == "integer"
             ? value.is_number() && std::trunc(value.double_or(0.5)) == value.double_or(0)
             : type == "number" && value.is_number();
}

// The first difference between a value and its schema, or nothing.
std::string difference(const Json& value, const Json& named, const std::string& at) {
  const Json& schema = resolved(named);
  if (schema["oneOf"].is_array()) {
    std::string last;
    for (auto& one : schema["oneOf"].items())
      if (last = difference(value, one, at); last.empty())
        return {};
    return last;
  }
  if (!of_type(value, schema["type"].str_or("")))
    return at + ": not of type " + std::string(schema["type"].str_or("?"));
  if (value.is_array()) {
    for (auto& item : value.items())
      if (auto d = difference(item, schema["items"], at + "[]"); !d.empty())
        return d;
    return {};
  }
  if (!value.is_object())
    return {};
  for (auto& [name, member] : value.members()) {
    const Json& known = schema["properties"][name];
    if (known.is_null() && !schema["additionalProperties"].is_object())
      return at + "." + name + ": not in the schema";
    const Json& its = known.is_null() ? schema["additionalProperties"] : known;
    if (auto d = difference(member, its, at + "." + name); !d.empty())
      return d;
  }
  for (auto& name : schema["required"].items())
    if (std::none_of(value.members().begin(), value.members().end(),
                     [&](auto& member) { return member.first == name.str_or(""); }))
      return at + "." + std::string(name.str_or("")) + ": required, but missing";
  return {};
}

Json ask(const char* question, std::vector<advise::FleetGpu> fleet = {}) {
  auto answer =
      advise::answer(*parse_json(question), {.data_dir = ::testing::TempDir() + "/billow_no_such",
                                             .fleet = std::move(fleet),
                                             .now = system_clock().wall()});
  EXPECT_TRUE(answer) << question << ": " << answer.error().message;
  return answer ? std::move(*answer) : Json();
}

const Json& schema(const char* name) {
  return document()["components"]["schemas"][name];
}

TEST(AdviceSchema, EveryFieldOfAQuestionIsDescribedAndAccepted) {
  const Json& described = schema("AdviceQuestion")["properties"];
  std::set<std::string> accepted;
  for (const char* field : advise::advice_question_fields()) {
    accepted.insert(field);
    EXPECT_FALSE(described[field].is_null()) << field << " is accepted but not described";
    EXPECT_FALSE(described[field]["description"].is_null()) << field;
  }
  for (auto& [name, about] : described.members())
    EXPECT_TRUE(accepted.contains(name)) << name << " is described but not accepted";
}

TEST(AdviceSchema, EveryFieldOfAServingAnswerIsDescribed) {
  for (const char* question :
       {R"({"model": "8B", "users": 50, "ttft_ms": 800, "tps": 15, "percentile": "p95"})",
        R"({"model": "Qwen3-235B-A22B", "rps": 3, "input": 4000, "any": true, "spot": true})",
        R"({"model": "DeepSeek-R1", "rps": 9, "gpu": "H200", "way": "separate-prefill"})",
        R"({"model": "70B", "rps": 2, "draft_tokens": 3, "adapters": 4, "kv_cache": "fp8"})"})
    EXPECT_EQ(difference(ask(question), schema("ServingAdvice"), "answer"), "") << question;
  EXPECT_EQ(difference(ask(R"({"model": "7B", "users": 2, "mine": true})",
                           {{.gpu = "H100", .per_node = 8, .nodes = 1}}),
                       schema("ServingAdvice"), "answer"),
            "");
}

TEST(AdviceSchema, EveryFieldOfATrainingAnswerIsDescribed) {
  for (const char* question :
       {R"({"model": "8B", "train": true})",
        R"({"model": "70B", "train": true, "tokens": 1e12, "deadline_h": 2000, "gpu": "H100"})"})
    EXPECT_EQ(difference(ask(question), schema("TrainingAdvice"), "answer"), "") << question;
}

TEST(AdviceSchema, EveryFieldOfAPublishedRateIsDescribed) {
  for (const char* question : {R"({"model": "sdxl", "rps": 5})", R"({"model": "flux", "rps": 1})"})
    EXPECT_EQ(difference(ask(question), schema("MediaAdvice"), "answer"), "") << question;
}

// The comparison itself finds what is missing or wrong.
TEST(AdviceSchema, ADifferenceIsFound) {
  Json answer = ask(R"({"model": "sdxl", "rps": 5})");
  answer.set("made_up", 1);
  EXPECT_NE(difference(answer, schema("MediaAdvice"), "answer"), "");
  EXPECT_NE(difference(ask(R"({"model": "sdxl"})"), schema("TrainingAdvice"), "answer"), "");
  EXPECT_NE(difference(Json("text"), schema("MediaAdvice"), "answer"), "");
}

}  // namespace
}  // namespace billow::api
