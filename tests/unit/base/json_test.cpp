// JSON is what the journal, the API and the agents exchange: what is written must be read back
// equal, and malformed text must be refused with its place.
#include "base/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/rng.h"

namespace billow {
namespace {

TEST(Json, NumbersKeepTheirKindAndValue) {
  const auto read = [](const char* text) {
    return parse_json(text).value();
  };
  EXPECT_EQ(read("9223372036854775807").int_or(0), INT64_MAX);
  EXPECT_EQ(read("-9223372036854775808").int_or(0), INT64_MIN);
  EXPECT_EQ(read("18446744073709551615").uint_or(0), UINT64_MAX);
  EXPECT_FALSE(read("1.0").is_integer());
  EXPECT_EQ(read("1.0").dump(), "1.0");
  EXPECT_EQ(read("1e3").int_or(0), 1000);
  EXPECT_EQ(read("1.5").int_or(7), 7) << "a fraction is no integer";
  EXPECT_EQ(read("-1").uint_or(7), 7u) << "a negative number is not unsigned";
  EXPECT_EQ(read("3").double_or(0), 3.0);
}

TEST(Json, EveryDoubleIsReadBackEqual) {
  Rng rng(7);
  for (int i = 0; i < 20'000; ++i) {
    const double wanted = std::ldexp(rng.unit() - 0.5, static_cast<int>(rng.between(-300, 300)));
    const auto read = parse_json(Json(wanted).dump());
    ASSERT_TRUE(read);
    ASSERT_EQ(read->double_or(-1), wanted);
  }
  EXPECT_EQ(Json(std::numeric_limits<double>::infinity()).dump(), "null");
  EXPECT_EQ(Json(std::nan("")).dump(), "null");
}

TEST(Json, EveryByteStringBecomesValidJson) {
  Rng rng(11);
  for (int i = 0; i < 5'000; ++i) {
    std::string bytes;
    for (auto n = rng.below(20); n > 0; --n)
      bytes += static_cast<char>(rng.below(256));
    const auto read = parse_json(Json(bytes).dump());
    ASSERT_TRUE(read) << Json(bytes).dump();
    ASSERT_TRUE(read->is_string());
  }
  EXPECT_EQ(Json("a\"b\\c\n\x01").dump(), R"("a\"b\\c\n\u0001")");
  EXPECT_EQ(Json("\xff").dump(), "\"\xef\xbf\xbd\"") << "an invalid byte is replaced";
  EXPECT_EQ(parse_json(R"("\u00e9\ud83d\ude00")")->as_string(), "\xc3\xa9\xf0\x9f\x98\x80");
}

TEST(Json, MalformedTextIsRefusedWithItsPlace) {
  for (const char* bad : {"", " ", "{", "[1,]", "{\"a\":1,}", "01", "1.", "+1", "nul", "'a'",
                          "\"\xff\"", "\"a\nb\"", "[1] 2", "{\"a\" 1}", "\"\\x\"", "NaN"})
    EXPECT_FALSE(parse_json(bad)) << bad;
  const auto wrong = parse_json("{\n  \"a\": ?\n}");
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code, Code::invalid);
  EXPECT_NE(wrong.error().message.find("line 2, column 8"), std::string::npos)
      << wrong.error().message;
}

TEST(Json, DepthIsLimited) {
  EXPECT_TRUE(parse_json(std::string(60, '[') + std::string(60, ']')));
  EXPECT_FALSE(parse_json(std::string(5'000, '[') + std::string(5'000, ']')));
}

TEST(Json, OfDuplicateNamesTheLastWins) {
  const auto small = parse_json(R"({"a":1,"b":2,"a":3})").value();
  EXPECT_EQ(small["a"].int_or(0), 3);
  EXPECT_EQ(small.size(), 2u);
  std::string text = "{";
  for (int i = 0; i < 200; ++i)
    text += "\"k" + std::to_string(i) + "\":" + std::to_string(i) + ",";
  const auto large = parse_json(text + R"("k3":-3,"k150":-150})").value();
  EXPECT_EQ(large["k3"].int_or(0), -3);
  EXPECT_EQ(large["k150"].int_or(0), -150);
  EXPECT_EQ(large["k149"].int_or(0), 149);
  EXPECT_EQ(large.size(), 200u);
}

TEST(Json, MissingMembersReadAsNull) {
  const auto value = parse_json(R"({"job":{"spec":{"name":"train"}},"list":[1,2]})").value();
  EXPECT_EQ(value.at("job", "spec", "name").str_or(""), "train");
  EXPECT_TRUE(value.at("job", "nothing", "name").is_null());
  EXPECT_TRUE(value["list"].at("x").is_null());
  EXPECT_EQ(value["list"].items().size(), 2u);
  EXPECT_EQ(value["job"].items().size(), 0u);
  EXPECT_EQ(value.find("absent"), nullptr);
}

TEST(Json, SetReplacesAndKeepsTheOrder) {
  Json value;
  value.set("b", 1);
  value.set("a", 2);
  value.set("b", "x");
  EXPECT_EQ(value.dump(), R"({"b":"x","a":2})");
  Json list;
  list.push(true);
  list.push(nullptr);
  EXPECT_EQ(list.dump(), "[true,null]");
  value.set("list", list);
  EXPECT_EQ(value.dump_pretty(),
            "{\n  \"b\": \"x\",\n  \"a\": 2,\n  \"list\": [\n    true,\n    null\n  ]\n}");
  EXPECT_STREQ(value.kind(), "object");
}

// A random value of limited depth.
Json random_json(Rng& rng, int depth) {
  switch (rng.below(depth > 0 ? 7 : 5)) {
    case 0:
      return nullptr;
    case 1:
      return rng.chance(0.5);
    case 2:
      return static_cast<std::int64_t>(rng.next());
    case 3:
      return rng.next();
    case 4:
      return std::string(rng.below(8), static_cast<char>('a' + rng.below(26)));
    case 5: {
      Json out = Json::array();
      for (auto n = rng.below(5); n > 0; --n)
        out.push(random_json(rng, depth - 1));
      return out;
    }
    default: {
      Json out = Json::object();
      for (auto n = rng.below(5); n > 0; --n)
        out.set("k" + std::to_string(n), random_json(rng, depth - 1));
      return out;
    }
  }
}

TEST(Json, WhatIsWrittenIsReadBackEqual) {
  Rng rng(3);
  for (int i = 0; i < 2'000; ++i) {
    const Json value = random_json(rng, 4);
    ASSERT_EQ(parse_json(value.dump()), value) << value.dump();
    ASSERT_EQ(parse_json(value.dump_pretty()), value) << value.dump_pretty();
  }
}

}  // namespace
}  // namespace billow
