#include "base/text.h"

#include <gtest/gtest.h>

#include "base/crypto.h"
#include "base/json.h"
#include "base/money.h"

namespace billow {
namespace {

TEST(Text, DurationsReadAsPeopleWriteThem) {
  EXPECT_EQ(parse_duration("90s"), seconds(90));
  EXPECT_EQ(parse_duration("1h30m"), minutes(90));
  EXPECT_EQ(parse_duration("02:00:00"), hours(2));
  EXPECT_EQ(parse_duration("1.5h"), minutes(90));
  EXPECT_EQ(parse_duration("250ms"), milliseconds(250));
  EXPECT_EQ(parse_duration("45"), seconds(45));
  for (const char* bad : {"", "h", "5x", "-3s", "1h junk", "99999999999999999999d", "1:2:3:4", "."})
    EXPECT_FALSE(parse_duration(bad)) << bad;
}

TEST(Text, SizesArePowersOf1024) {
  EXPECT_EQ(parse_bytes("20G"), 20ull << 30);
  EXPECT_EQ(parse_bytes("1.5T"), 3ull << 39);
  EXPECT_EQ(parse_bytes("512MiB"), 512ull << 20);
  EXPECT_EQ(parse_bytes("7"), 7u);
  for (const char* bad : {"", "G", "1X", "1GG", "-1G", "9999999999P"})
    EXPECT_FALSE(parse_bytes(bad)) << bad;
}

TEST(Text, MilliTakesAtMostThreeDecimals) {
  EXPECT_EQ(parse_milli("0.25"), 250);
  EXPECT_EQ(parse_milli("2"), 2000);
  EXPECT_FALSE(parse_milli("0.0001"));
  EXPECT_FALSE(parse_milli("a"));
}

TEST(Text, DoublesAreWholeFiniteDecimalTexts) {
  EXPECT_EQ(parse_double("0.5"), 0.5);
  EXPECT_EQ(parse_double("-3"), -3.0);
  EXPECT_EQ(parse_double("1e6"), 1e6);
  EXPECT_EQ(parse_double(".5"), 0.5);
  EXPECT_EQ(parse_double("0.1"), 0.1);
  for (const char* bad : {"", "abc", "1x", "1 ", " 1", "+1", "nan", "inf", "-inf", "0x10", "1e999",
                          "-1e999", "1,5", "1.2.3", "--1", "e5", ".", "-"})
    EXPECT_FALSE(parse_double(bad)) << bad;
}

TEST(Text, DoublesStayWithinTheirLimits) {
  EXPECT_EQ(parse_double("0", 0, 1), 0.0);
  EXPECT_EQ(parse_double("1", 0, 1), 1.0);
  const auto above = parse_double("1.5", 0, 1);
  ASSERT_FALSE(above);
  EXPECT_EQ(above.error().message, "1.5 is out of range: 0 to 1");
  const auto below = parse_double("-2", 0);
  ASSERT_FALSE(below);
  EXPECT_EQ(below.error().message, "-2 is out of range: at least 0");
  EXPECT_EQ(parse_double("abc").error().message, "not a number: \"abc\"");
}

TEST(Text, NearestFindsTypos) {
  EXPECT_EQ(nearest("h10", {"A100", "H100", "L4"}), "H100");
  EXPECT_EQ(nearest("zebra", {"A100", "H100"}), "");
  EXPECT_EQ(nearest("h10", {std::string(100, 'x'), "H100"}), "H100");
}

// Such words come from requests, and the work grows with their length: one of a megabyte stopped
// the head for most of a minute.
TEST(Text, NearestLooksAtNoLongWords) {
  EXPECT_EQ(nearest(std::string(200, 'a'), {std::string(199, 'a')}), "");
  EXPECT_EQ(nearest(std::string(8 << 20, 'a'), {"queued", "running", "ended"}), "");
}

TEST(Text, ShellQuotingSurvivesQuotes) {
  EXPECT_EQ(shell_join({"echo", "it's", "a b", ""}), "echo 'it'\\''s' 'a b' ''");
}

TEST(Json, RoundTripsAndNamesTheErrorPlace) {
  const char* text = R"({"a":[1,-2,3.5,18446744073709551615,true,null],"b":{"c":"x\ny"}})";
  const auto parsed = parse_json(text);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->dump(), text);
  EXPECT_EQ(parsed->at("b", "c").str_or(""), "x\ny");
  const auto bad = parse_json("{\n  \"a\": }");
  ASSERT_FALSE(bad);
  EXPECT_NE(bad.error().message.find("line 2"), std::string::npos) << bad.error().message;
  EXPECT_FALSE(parse_json("{} {}"));
  EXPECT_FALSE(parse_json(""));
  EXPECT_FALSE(parse_json(std::string(1000, '[')));
}

TEST(Money, RoundsOnlyWhenShown) {
  EXPECT_EQ(amount(Rate{830'555}, seconds(3600)).value, 830'555ll * 3600);
  EXPECT_EQ(amount(Rate{1'000'000'000}, seconds(10), 250).value, 2'500'000'000ll);
  EXPECT_EQ(format_usd({2'990'000'000}), "$2.99");
  EXPECT_EQ(format_usd({4'200'000}), "$0.0042");
  EXPECT_EQ(format_usd({0}), "$0.00");
  EXPECT_EQ(parse_usd("$12.50"), NanoUsd{12'500'000'000});
  EXPECT_FALSE(parse_usd("12.5.0"));
  EXPECT_FALSE(parse_usd("99999999999999"));
}

TEST(Crypto, KnownAnswers) {
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hmac_sha256_hex("key", "The quick brown fox jumps over the lazy dog"),
            "f7bc83f430538424b13298e6aa6fb143ef4d59a14946175997479dbc2d1a3cd8");
  std::string out;
  EXPECT_TRUE(base64_decode(base64("any carnal pleas"), out));
  EXPECT_EQ(out, "any carnal pleas");
  EXPECT_FALSE(base64_decode("a===", out));
  EXPECT_NE(random_token(), random_token());
}

TEST(Text, InvalidUtf8IsRepairedAndNoCharacterIsCut) {
  EXPECT_TRUE(valid_utf8("né\xf0\x9f\x8c\x8a"));
  for (const char* bad :
       {"\xc3", "a\xff", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\x80"}) {
    EXPECT_FALSE(valid_utf8(bad));
    EXPECT_TRUE(valid_utf8(repaired_utf8(bad)));
  }
  EXPECT_EQ(repaired_utf8("a\xc3z\xc3\xa9"), "a\xef\xbf\xbdzé");
  EXPECT_EQ(utf8_prefix("aé", 2), "a");
  EXPECT_EQ(utf8_prefix("aé", 3), "aé");
  EXPECT_EQ(utf8_prefix("\xf0\x9f\x8c\x8a", 3), "");
}

TEST(Text, WhateverIsWrittenAsJsonCanBeReadAgain) {
  for (const std::string& text : {std::string("a\xc3"), std::string("\xff\xfe\0x", 4),
                                  std::string("\xed\xa0\x80\"\\"), std::string("fine: né")}) {
    const auto read = parse_json(Json::object({{text, text}}).dump());
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(read->members().front().second.as_string(), repaired_utf8(text));
  }
}

TEST(Text, DurationsTooLongSaturate) {
  EXPECT_EQ(seconds(INT64_MAX).ns, INT64_MAX);
  EXPECT_EQ(seconds(18'446'744'074).ns, INT64_MAX);
  EXPECT_EQ(hours(-INT64_MAX).ns, -INT64_MAX);
  EXPECT_EQ(minutes(90), hours(1) + minutes(30));
}

}  // namespace
}  // namespace billow
