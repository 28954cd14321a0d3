// The one reader and writer of comma-separated values: what it reads, what it refuses, and that it
// names the line.
#include "base/formats/csv.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include "base/rng.h"

namespace billow {
namespace {

using Rows = std::vector<std::vector<std::string>>;

std::string error_of(std::string_view text, CsvFormat format = {}) {
  const auto table = parse_csv(text, format);
  return table ? "none" : table.error().message;
}

TEST(Csv, ReadsBackWhatItWrote) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Rng rng(seed);
    std::vector<std::vector<std::string>> rows;
    const auto columns = static_cast<std::size_t>(rng.between(2, 5));
    for (auto n = rng.between(1, 6); n > 0; --n) {
      std::vector<std::string> row(columns);
      for (std::string& cell : row)
        for (auto m = rng.between(0, 6); m > 0; --m)
          cell += "ab,\"\n; "[rng.below(7)];
      if (row[0].empty())
        row[0] = "x";
      for (std::size_t i = 0; rows.empty() && i < columns; ++i)
        row[i] += std::to_string(i);  // names of columns differ
      rows.push_back(row);
    }
    std::string text;
    for (const auto& row : rows)
      append_csv_row(text, row);
    const auto table = parse_csv(text);
    ASSERT_TRUE(table) << text;
    EXPECT_EQ(table->header, rows[0]);
    EXPECT_EQ(table->rows, std::vector<std::vector<std::string>>(rows.begin() + 1, rows.end()));
  }
}

TEST(Csv, QuotedFieldsHoldCommasQuotesAndLineBreaks) {
  const auto table = parse_csv("a,\"b, c\"\n\"x\r\ny, \"\"z\"\"\",\"\"\n3,4\n");
  ASSERT_TRUE(table) << table.error().message;
  EXPECT_EQ(table->header, (std::vector<std::string>{"a", "b, c"}));
  EXPECT_EQ(table->rows, (Rows{{"x\r\ny, \"z\"", ""}, {"3", "4"}}));
  EXPECT_EQ(table->lines, (std::vector<std::size_t>{2, 4})) << "a row may span lines";
}

TEST(Csv, LinesEndWithLfCrlfOrTheText) {
  const Rows rows{{"1", "2"}, {"3", "4"}};
  for (const char* text :
       {"a,b\n1,2\n3,4\n", "a,b\n1,2\n3,4", "a,b\r\n1,2\r\n3,4\r\n", "a,b\r\n1,2\r\n3,4\r",
        "a,b\r\n1,\"2\"\r\n3,\"4\"\r\n", "\xEF\xBB\xBF\"a\",b\n\n1,2\r\n\r\n3,4\n\n"}) {
    const auto table = parse_csv(text);
    ASSERT_TRUE(table) << text;
    EXPECT_EQ(table->header, (std::vector<std::string>{"a", "b"})) << text;
    EXPECT_EQ(table->rows, rows) << text;
  }
  EXPECT_EQ(parse_csv("a\nx\ry\n")->rows, Rows{{"x\ry"}}) << "no line end";
}

TEST(Csv, EmptyFieldsAreFields) {
  EXPECT_EQ(parse_csv("a,b,c\n,,\n1,,\n,,3")->rows,
            (Rows{{"", "", ""}, {"1", "", ""}, {"", "", "3"}}));
  EXPECT_EQ(parse_csv("a\n\"\"\n\n")->rows, Rows{{""}}) << "only an unquoted line can be empty";
}

TEST(Csv, ARowIsAsLongAsTheHeader) {
  EXPECT_EQ(error_of("a,b\n1,2\n\n1\n"), "line 4 has 1 fields, but the header has 2");
  EXPECT_EQ(error_of("a,b\n1,2,3\n", {.short_rows = true}),
            "line 2 has 3 fields, but the header has 2");
  EXPECT_EQ(parse_csv("a,b,c\n1\n", {.short_rows = true})->rows, (Rows{{"1", "", ""}}));
}

TEST(Csv, SpacesAndCommentsGoOnlyOnRequest) {
  const char* text = "a , b\n # 1,\"2\n x ,\t\"y z\" \r\n   \n";
  const auto table = parse_csv(text, {.trimmed = true, .comments = true});
  ASSERT_TRUE(table) << table.error().message;
  EXPECT_EQ(table->header, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(table->rows, (Rows{{"x", "y z"}}));
  EXPECT_EQ(table->lines, std::vector<std::size_t>{3});
  EXPECT_EQ(parse_csv("#a, b\n 1,2 \n")->header, (std::vector<std::string>{"#a", " b"}));
  EXPECT_EQ(parse_csv("#a, b\n 1,2 \n")->rows, (Rows{{" 1", "2 "}}));
}

TEST(Csv, FieldsAreFoundByName) {
  const auto table = parse_csv("name,gpus,\nana,8,\n");
  ASSERT_TRUE(table);
  EXPECT_EQ(table->column("gpus"), 1u);
  EXPECT_EQ(table->column("GPUs"), std::string::npos);
  EXPECT_EQ(table->by_name(0).at("gpus"), "8");
}

TEST(Csv, RefusesWhatCouldBeReadInTwoWays) {
  EXPECT_EQ(error_of(""), "the file is empty");
  EXPECT_EQ(error_of("\n\r\n"), "the file is empty");
  EXPECT_EQ(error_of("a,b\n1,5\" disk\n"), "line 2: a quote inside a field");
  EXPECT_EQ(error_of("a,b\n1, \"2\"\n"), "line 2: a quote inside a field");
  EXPECT_EQ(error_of("a,b\n\"1\n\"2,3\n"), "line 3: text after a closing quote");
  EXPECT_EQ(error_of("a,b\n1,2\n\"3,4\n5,6\n"), "line 3: a quote is not closed");
  EXPECT_EQ(error_of("a,b,a\n1,2,3\n"), "the header names column \"a\" twice");
}

TEST(Csv, LongRowsAndManyColumnsEndTheReadingEarly) {
  const std::string mebibytes(3 << 20, 'x');
  EXPECT_EQ(error_of("a\n" + mebibytes), "line 2 is longer than 1 MiB");
  EXPECT_EQ(error_of("a\n1\n\"" + mebibytes), "line 3 is longer than 1 MiB") << "no closing quote";
  const std::string many(2000, ',');
  EXPECT_EQ(error_of("a,b\n" + many), "line 2 has more than 1024 fields");
  EXPECT_TRUE(parse_csv("a\n" + mebibytes.substr(0, 1 << 20)));
}

// What would be a comment, the mark at a file's beginning or an empty line is quoted when it is
// written. A price whose provider begins with # was lost when imported prices were read again.
TEST(Csv, WrittenRowsAreReadAgainWhateverTheyBeginWith) {
  for (const std::vector<std::string>& row :
       {std::vector<std::string>{"#x", "1"}, {" #x", "1"}, {"\xEF\xBB\xBFx", "1"}, {""}}) {
    std::string text;
    append_csv_row(text, row);
    CsvReader reader(text, {.comments = true});
    std::vector<std::string> back;
    ASSERT_TRUE(reader.next(back).value_or(false)) << text;
    EXPECT_EQ(back, row);
  }
  std::string plain;
  append_csv_row(plain, {"a", "#b", ""});
  EXPECT_EQ(plain, "a,#b,\n");
}

TEST(CsvReader, ReadsRowsOfAnyLengthWithoutAHeader) {
  CsvReader reader("1,2,3\n\n4\n", {});
  std::vector<std::string> row;
  ASSERT_TRUE(*reader.next(row));
  EXPECT_EQ(row.size(), 3u);
  ASSERT_TRUE(*reader.next(row));
  EXPECT_EQ(row, std::vector<std::string>{"4"});
  EXPECT_EQ(reader.line(), 3u);
  EXPECT_FALSE(*reader.next(row));
  EXPECT_FALSE(*reader.next(row)) << "still at the end";
}

}  // namespace
}  // namespace billow
