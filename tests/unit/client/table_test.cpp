#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "base/formats/utc.h"
#include "base/text.h"
#include "client/frame/table.h"
#include "client/frame/terminal.h"
#include "client/jobs/attachment.h"
#include "client/request/job_list.h"

namespace billow::client {
namespace {

TEST(Table, AlignsColumnsAndEndsLinesWithoutBlanks) {
  Table table({{"A"}, {"NUMBER", Table::Align::right}, {"Z"}});
  table.row({"x", "1", "end"});
  table.row({"longer", "22", ""});
  EXPECT_EQ(table.text({}), "A       NUMBER  Z\nx            1  end\nlonger      22\n");
}

TEST(Table, CutsOnlyWhatMayShrinkAndFits) {
  Table table({{"ID"}, {"TEXT", Table::Align::left, 6}});
  table.row({"1234567890", "a long remark that cannot fit"});
  const std::string text = table.text({.columns = 24});
  for (const auto& line : split(text, '\n'))
    EXPECT_LE(display_width(line), 24u);
  EXPECT_NE(text.find("1234567890"), std::string::npos);
  EXPECT_NE(text.find("…"), std::string::npos);
  EXPECT_NE(table.text({}).find("cannot fit"), std::string::npos)
      << "without a width nothing is cut";
}

TEST(Table, LeavesOutWhatMattersLeastWhereNothingCanShrink) {
  Table table(
      {{"ID"}, {"USER", Table::Align::left, 0, 2}, {"AGE", Table::Align::right, 0, 1}, {"WHERE"}});
  table.row({"12345", "somebody", "1m 2s", "at-the-end"});
  EXPECT_EQ(table.text({.columns = 40}),
            "ID     USER        AGE  WHERE\n12345  somebody  1m 2s  at-the-end\n");
  EXPECT_EQ(table.text({.columns = 30}), "ID     USER      WHERE\n12345  somebody  at-the-end\n");
  EXPECT_EQ(table.text({.columns = 20}), "ID     WHERE\n12345  at-the-end\n");
  EXPECT_EQ(table.text({.columns = 5}), table.text({.columns = 20}))
      << "what is left is shown, fit or not";
  EXPECT_NE(table.text({}).find("AGE"), std::string::npos) << "what goes to a file is whole";
}

TEST(Table, AmountsOfAColumnHaveTheSameDecimals) {
  using Cells = std::vector<std::string>;
  EXPECT_EQ(aligned_usd({"$0.06", "$0.0000018", "$0.000000060", "$0.00", "-"}),
            (Cells{"$0.06", "<$0.01", "<$0.01", "$0.00", "-"}));
  EXPECT_EQ(aligned_usd({"$12.00", "$0.0067", "-$3.10"}), (Cells{"$12.00", "$0.01", "-$3.10"}));
  EXPECT_EQ(aligned_usd({"$0.0067", "$0.00058", "$0.000037", "$0.00"}),
            (Cells{"$0.0067", "$0.0006", "<$0.0001", "$0.0000"}));
  EXPECT_EQ(aligned_usd({"$0.0000018", "$0.00000006"}), (Cells{"$0.0000018", "$0.0000001"}));
  EXPECT_EQ(aligned_usd({"$0.00", ""}), (Cells{"$0.00", ""}));
  EXPECT_EQ(aligned_usd({"$2.99/h", "$0.0001"}), (Cells{"$2.99/h", "$0.0001"})) << "no amounts";
  Table table({{"JOB"}, {"COST", Table::Align::right}});
  table.row({"$0.5", "$0.0067"});
  table.row({"b", "$1.20"});
  EXPECT_EQ(table.text({}), "JOB    COST\n$0.5  $0.01\nb     $1.20\n");
}

TEST(Table, CountsColumnsNotBytes) {
  EXPECT_EQ(display_width("日本"), 4u);
  EXPECT_EQ(display_width("é…"), 2u);
  EXPECT_EQ(clipped("日本語", 5), "日本…");
  EXPECT_EQ(clipped("a\x1b[31mred\n", 20), "a?[31mred ") << "a job's name must not move the cursor";
}

TEST(Table, ColoursOnlyWhereTheyShow) {
  EXPECT_EQ(painted("x", Colour::red, {}), "x");
  EXPECT_EQ(painted("x", Colour::red, {.colours = true}), "\x1b[31mx\x1b[0m");
}

TEST(Table, AnyTextFits) {
  rc::check([](const std::string& text) {
    const std::size_t columns = *rc::gen::inRange<std::size_t>(1, 40);
    RC_ASSERT(display_width(clipped(text, columns)) <= columns);
  });
}

TEST(Times, AreReadAndShownAsAges) {
  EXPECT_EQ(format_utc(utc_or_zero("2026-11-15T01:29:00Z")), "2026-11-15T01:29:00Z");
  EXPECT_EQ(format_utc(utc_or_zero("2026-11-15T01:29:00.250Z")), "2026-11-15T01:29:00Z");
  EXPECT_FALSE(utc_or_zero("yesterday"));
  const WallTime now = utc_or_zero("2026-11-15T01:30:05Z");
  EXPECT_EQ(age(Json("2026-11-15T01:29:00Z"), now), "1m 5s");
  EXPECT_EQ(age(Json(), now), "-");
  EXPECT_EQ(age(Json("2026-11-15T01:31:00Z"), now), "0s") << "a clock a little ahead";
  EXPECT_EQ(span_between(Json("2026-11-15T01:00:00Z"), Json("2026-11-15T01:00:09Z"), now), "9s");
}

Json job(int id, const char* state, int array = 0, int index = 0) {
  Json j = Json::object(
      {{"id", id},
       {"label", array ? std::to_string(array) + "." + std::to_string(index) : std::to_string(id)},
       {"state", state},
       {"name", "n"},
       {"final", std::string_view(state) == "succeeded"},
       {"gpus", 1},
       {"gpu_milli", 250}});
  if (array)
    j.set("array", Json::object({{"id", array}, {"index", index}}));
  return j;
}

TEST(Ps, ArraysAreOneRow) {
  const auto rows =
      collapse_arrays({job(20, "queued"), job(12, "running", 10, 1), job(11, "succeeded", 10, 0),
                       job(13, "queued", 10, 2), job(3, "running")});
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[1]["label"].str_or(""), "10");
  EXPECT_EQ(rows[1].at("elements", "count").int_or(0), 3);
  EXPECT_EQ(rows[1].at("elements", "left").int_or(0), 2);
  EXPECT_EQ(rows[1]["state"].str_or(""), "running");
  const std::string text = jobs_table(rows, WallTime{}).text({});
  EXPECT_NE(text.find("10[]"), std::string::npos);
  EXPECT_NE(text.find("1/3 done"), std::string::npos);
  EXPECT_NE(text.find("0.25"), std::string::npos);
}

TEST(Ps, ASuspendedJobSaysWhenItGoesOn) {
  const auto row = [](bool by_itself, const char* reason) {
    Json job = Json::object(
        {{"id", 7},
         {"label", "7"},
         {"name", "train"},
         {"state", "suspended"},
         {"reason", reason},
         {"suspension", Json::object({{"phase", "suspended"}, {"resumes_by_itself", by_itself}})}});
    return jobs_table({std::move(job)}, WallTime{}).text({});
  };
  EXPECT_NE(row(true, "").find("resumes when its GPUs are free"), std::string::npos);
  EXPECT_NE(
      row(true, "preempted by job 9").find("preempted by job 9; resumes when its GPUs are free"),
      std::string::npos);
  EXPECT_NE(row(false, "").find("resume it with `billow resume 7`"), std::string::npos);
}

TEST(Ps, AnArraysOwnDocumentGoesFirst) {
  Json array = job(10, "running");
  array.set("elements", Json::object({{"count", 100}, {"left", 40}, {"succeeded", 58}}));
  const auto rows = collapse_arrays({array, job(12, "running", 10, 1)});
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_NE(jobs_table(rows, WallTime{}).text({}).find("60/100 done, 2 not ok"), std::string::npos);
}

TEST(Describe, ShowsWhatThereIsAndSurvivesWhatThereIsNot) {
  const std::string text = describe_text(job(7, "running"), WallTime{}, {});
  EXPECT_NE(text.find("job  7"), std::string::npos);
  EXPECT_NE(text.find("credentials"), std::string::npos);
  EXPECT_FALSE(describe_text(Json(), WallTime{}, {}).empty());
  EXPECT_FALSE(summary_of(Json(), WallTime{}).empty());
}

TEST(Describe, AnyDocumentIsShown) {
  rc::check([](const std::string& a, int n) {
    const Json odd = Json::object({{"label", n},
                                   {"state", Json::array()},
                                   {"tasks", Json::array()},
                                   {"gpus", a},
                                   {"elements", n},
                                   {"array", a},
                                   {"labels", n},
                                   {"exit", a},
                                   {"cost", n},
                                   {"submitted_at", a}});
    RC_ASSERT(!describe_text(odd, WallTime{}, {}).empty());
    RC_ASSERT(!jobs_table(collapse_arrays({odd}), WallTime{}).text({.columns = 40}).empty());
  });
}

TEST(DetachKeys, AreFoundAcrossReads) {
  DetachKeys keys;
  EXPECT_EQ(keys.take("ab").input, "ab");
  EXPECT_EQ(keys.take("\x10").input, "") << "held back until the next key";
  EXPECT_TRUE(keys.take("\x11rest").detach);
  EXPECT_EQ(keys.take("\x10x").input, "\x10x") << "Ctrl-P and another key are the job's";
  EXPECT_EQ(keys.take("\x10\x10").input, "\x10");
  EXPECT_TRUE(keys.take("\x11").detach);
}

TEST(Output, CarriesAStreamAndMayCarryAnOffset) {
  EXPECT_EQ(parse_output(std::string("\x01", 1) + "hi")->bytes, "hi");
  EXPECT_TRUE(parse_output(std::string("\x02", 1) + "hi")->error_stream);
  EXPECT_FALSE(parse_output(std::string("\x01", 1) + "hi")->resume_at);
  const auto with_offset = parse_output(std::string("\x81\x2a\x01\0\0\0\0\0\0", 9) + "hi");
  ASSERT_TRUE(with_offset);
  EXPECT_EQ(*with_offset->resume_at, 0x12aull);
  EXPECT_EQ(with_offset->bytes, "hi");
  EXPECT_FALSE(parse_output(""));
  EXPECT_FALSE(parse_output("\x03x"));
  EXPECT_FALSE(parse_output("\x81short"));
}

}  // namespace
}  // namespace billow::client
