#include "core/model/array_spec.h"

#include <gtest/gtest.h>

#include "core/wire/codec.h"

namespace billow {
namespace {

using Indices = std::vector<std::uint64_t>;

Indices indices(const char* text) {
  const auto spec = parse_array(text);
  EXPECT_TRUE(spec) << text << ": " << (spec ? "" : spec.error().message);
  return spec ? spec->indices() : Indices();
}

TEST(ArraySpec, NamesIndicesAsSlurmDoes) {
  EXPECT_EQ(indices("3"), Indices({3}));
  EXPECT_EQ(indices("0-3"), Indices({0, 1, 2, 3}));
  EXPECT_EQ(indices("1-10:2"), Indices({1, 3, 5, 7, 9}));
  EXPECT_EQ(indices("1,5,7"), Indices({1, 5, 7}));
  EXPECT_EQ(indices("1,5-7%2"), Indices({1, 5, 6, 7}));
  EXPECT_EQ(indices("0-15:4,20,100-102"), Indices({0, 4, 8, 12, 20, 100, 101, 102}));
  EXPECT_EQ(parse_array("1,5-7%2")->running_max, 2u);
}

TEST(ArraySpec, IsASetInOrder) {
  EXPECT_EQ(indices("7,1,5"), Indices({1, 5, 7}));
  EXPECT_EQ(indices("1-4,3-6,3"), Indices({1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(indices("1-9:2,2-10:2"), Indices({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
}

TEST(ArraySpec, APlainRangeStaysWhatItWas) {
  const auto plain = parse_array("2-10:3%4");
  ASSERT_TRUE(plain);
  EXPECT_EQ(*plain, (ArraySpec{.first = 2, .last = 10, .step = 3, .running_max = 4}));
  EXPECT_EQ(wire::to_json_text(*plain), R"({"first":2,"last":10,"step":3,"running_max":4})");
  const auto old = wire::from_json_text<ArraySpec>(R"({"last":3})");
  ASSERT_TRUE(old);
  EXPECT_EQ(old->indices(), Indices({0, 1, 2, 3}));
}

TEST(ArraySpec, IsReadBackAsItIsWritten) {
  for (const char* text :
       {"3", "0-99", "2-10:3%4", "1,5,7", "1,5-7%2", "0-12:4,20,100-102", "1-2,9"}) {
    const auto spec = parse_array(text);
    ASSERT_TRUE(spec) << text;
    EXPECT_EQ(spec->text(), text);
    EXPECT_TRUE(check_indices(*spec)) << text;
    const auto stored = wire::from_json_text<ArraySpec>(wire::to_json_text(*spec));
    ASSERT_TRUE(stored) << text;
    EXPECT_EQ(*stored, *spec) << text;
    EXPECT_EQ(array_of(spec->indices()).indices(), spec->indices());
    EXPECT_EQ(spec->count(), spec->indices().size());
    EXPECT_EQ(spec->highest(), spec->indices().back());
  }
}

TEST(ArraySpec, FindsAnElementByItsIndex) {
  const auto spec = parse_array("0-8:4,20,100-102");
  ASSERT_TRUE(spec);
  const auto all = spec->indices();
  for (std::uint64_t at = 0; at < all.size(); ++at)
    EXPECT_EQ(spec->position_of(all[at]), at);
  for (const std::uint64_t absent : {1, 9, 12, 19, 21, 99, 103})
    EXPECT_EQ(spec->position_of(absent), std::nullopt) << absent;
}

TEST(ArraySpec, SaysWhatIsWrong) {
  const auto why = [](const char* text) {
    const auto spec = parse_array(text);
    return spec ? std::string("accepted") : spec.error().message;
  };
  EXPECT_EQ(why("9-1"), "--array 9-1: the last index, 1, is below the first, 9");
  EXPECT_EQ(why("1,,5"), "--array 1,,5: an index is missing beside a comma");
  EXPECT_EQ(why("1,"), "--array 1,: an index is missing beside a comma");
  EXPECT_EQ(why(""), "--array : the indices are missing");
  EXPECT_EQ(why("%4"), "--array %4: the indices are missing");
  EXPECT_EQ(why("5-"), "--array 5-: the last index is missing");
  EXPECT_EQ(why("-5"), "--array -5: an index must not be negative");
  EXPECT_EQ(why("1-9:"), "--array 1-9:: the step after \":\" is missing");
  EXPECT_EQ(why("3:2"), "--array 3:2: a step needs a range such as 0-9:2");
  EXPECT_EQ(why("1%2,5"), "--array 1%2,5: % limits the whole array, so it must come last");
  EXPECT_EQ(why("0-100000"), "--array 0-100000: more than 100000 elements");
  EXPECT_EQ(why("0-60000,70000-130000"), "--array 0-60000,70000-130000: more than 100000 elements");
  for (const char* bad : {"a", "1-b", "1-9:0", "1-9:x", "1-9%0", "1-9%", "1.5", "0-9999999999"})
    EXPECT_NE(why(bad), "accepted") << bad;
}

TEST(ArraySpec, FromOutsideMustAscend) {
  EXPECT_FALSE(check_indices({.first = 5, .last = 9, .more = {{9, 12, 1}}}));
  EXPECT_FALSE(check_indices({.first = 5, .last = 9, .more = {{3, 3, 1}}}));
  EXPECT_FALSE(check_indices({.first = 5, .last = 9, .more = {{12, 10, 1}}}));
  EXPECT_FALSE(check_indices({.first = 5, .last = 9, .more = {{12, 20, 0}}}));
  EXPECT_FALSE(check_indices({.first = 0, .last = 60'000, .more = {{70'000, 130'000, 1}}}));
  EXPECT_TRUE(check_indices({.first = 0, .last = 5, .step = 4, .more = {{5, 5, 1}}}));
}

}  // namespace
}  // namespace billow
