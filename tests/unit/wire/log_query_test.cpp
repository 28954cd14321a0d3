// Lines of a log by number, place and text, on logs made of records of any cut.
#include "core/wire/log_query.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/json.h"
#include "base/rng.h"

namespace billow::wire {
namespace {

// A log in memory, read in pieces of a few records.
struct FakeLog {
  std::string frames;
  std::vector<std::uint64_t> records;  // where each begins
  std::uint64_t first = 0;             // what is before is no longer kept
  std::size_t piece_records = 3;
  std::size_t reads = 0;

  void add(std::string_view data, LogStream stream = LogStream::out, std::int64_t at_ms = 1) {
    records.push_back(frames.size());
    const RecordHead head{static_cast<std::uint32_t>(data.size()),
                          static_cast<std::uint8_t>(stream), 0, 0, at_ms * 1'000'000};
    frames.append(reinterpret_cast<const char*>(&head), sizeof(head)).append(data);
  }
  LogPieces pieces() {
    return [this](std::uint64_t offset, std::size_t, LogPiece& into) -> Status {
      ++reads;
      offset = std::max(offset, first);
      const auto from = std::lower_bound(records.begin(), records.end(), offset);
      const auto left = static_cast<std::size_t>(records.end() - from);
      if (left == 0) {
        into = {frames.size(), frames.size(), "", true};
        return {};
      }
      const auto to =
          left > piece_records ? *(from + static_cast<long>(piece_records)) : frames.size();
      into = {*from, to, frames.substr(*from, to - *from), to == frames.size()};
      return {};
    };
  }
};

struct Lines {
  std::vector<std::pair<std::uint64_t, std::string>> lines;
  std::vector<Json> items;
  LogAnswer answer;
};
Lines ask(FakeLog& log, LineIndex& index, LogQuery query) {
  Lines out;
  for (int turns = 0; turns < 10'000; ++turns) {
    auto answer = run_query(query, index, log.pieces());
    if (!answer) {
      ADD_FAILURE() << answer.error().message;
      return out;
    }
    const auto parsed = parse_json("[" + answer->lines + "]");
    EXPECT_TRUE(parsed) << answer->lines;
    EXPECT_EQ(parsed->size(), answer->count);
    for (const Json& item : parsed->items()) {
      out.lines.emplace_back(item["line"].uint_or(0), item["text"].str_or(""));
      out.items.push_back(item);
    }
    out.answer = *answer;
    if (!answer->more)
      return out;
    query.from_byte = answer->next_byte;
  }
  ADD_FAILURE() << "it never ends";
  return out;
}
using Pairs = std::vector<std::pair<std::uint64_t, std::string>>;

TEST(LogQuery, LinesAreCutAtNewlinesAndNotAtRecords) {
  FakeLog log;
  log.add("one\ntw");
  log.add("o\n", LogStream::err);
  log.add("three\n\nfi");
  log.add("ve");
  LineIndex index;
  const Lines all = ask(log, index, {});
  EXPECT_EQ(all.lines, (Pairs{{1, "one"}, {2, "two"}, {3, "three"}, {4, ""}, {5, "five"}}));
  EXPECT_TRUE(all.items.back()["open"].bool_or(false)) << "its newline has not come";
  EXPECT_EQ(all.items[1].find("open"), nullptr);
  EXPECT_EQ(all.items[0]["byte"].uint_or(0), sizeof(RecordHead));
  EXPECT_EQ(all.items[1]["byte"].uint_or(0), sizeof(RecordHead) + 4);
  EXPECT_TRUE(all.answer.end);
  // The open line is asked for again by its place, and has grown.
  log.add("!\nsix\n");
  const Lines more = ask(log, index, {.from_byte = all.answer.next_byte});
  EXPECT_EQ(more.lines, (Pairs{{5, "five!"}, {6, "six"}}));
  EXPECT_EQ(ask(log, index, {.from_byte = more.answer.next_byte}).lines, Pairs{});
}

TEST(LogQuery, AProgressBarWithoutANewlineIsThere) {
  FakeLog log;
  log.add("starting\n");
  log.add("\r 15%|###", LogStream::err);
  LineIndex index;
  const Lines all = ask(log, index, {});
  EXPECT_EQ(all.lines, (Pairs{{1, "starting"}, {2, "\r 15%|###"}}));
  EXPECT_EQ(all.items[1]["stream"].str_or(""), "err");
  // Of a long one only its newest state.
  for (int i = 0; i < 5000; ++i)
    log.add("\r" + std::to_string(i) + "%", LogStream::err);
  const Lines last = ask(log, index, {.tail_lines = 1});
  ASSERT_EQ(last.lines.size(), 2u) << "the last whole line and the open one";
  EXPECT_EQ(last.lines[1].second, "\r4999%");
  EXPECT_TRUE(last.items[1]["cut"].bool_or(false));
}

// A log without a newline was collected in memory as a whole, and searched anew for each piece:
// any member could stop the node's agent for as long as that took.
TEST(LogQuery, ALineOfManyMegabytesIsShownCutAndNotCollected) {
  FakeLog log;
  log.piece_records = 1;
  log.add("before\n");
  for (int i = 0; i < 100; ++i)
    log.add(std::string(record_data_bytes_max, 'x'));
  log.add("\nafter\n");
  LineIndex index;
  const Lines all = ask(log, index, {});
  ASSERT_EQ(all.lines.size(), 3u);
  EXPECT_EQ(all.lines[0].second, "before");
  EXPECT_EQ(all.lines[1].first, 2u);
  EXPECT_TRUE(all.items[1]["cut"].bool_or(false));
  // Shown before its end was read: `open`. A reader that collects it would know its end.
  EXPECT_TRUE(all.items[1]["open"].bool_or(false));
  EXPECT_EQ(all.lines[2], (std::pair<std::uint64_t, std::string>{3, "after"}));
  EXPECT_TRUE(all.answer.end);
  const Lines last = ask(log, index, {.tail_lines = 1});
  ASSERT_FALSE(last.lines.empty());
  EXPECT_EQ(last.lines.back().second, "after");
  // An answer that ends with it: the next one goes on behind it.
  const Lines only = ask(log, index, {.from_line = 2, .lines_max = 1});
  ASSERT_EQ(only.lines.size(), 1u);
  EXPECT_EQ(only.answer.next_line, 3u);
  const Lines next = ask(log, index, {.from_byte = only.answer.next_byte, .lines_max = 1});
  ASSERT_EQ(next.lines.size(), 1u);
  EXPECT_EQ(next.lines[0], (std::pair<std::uint64_t, std::string>{3, "after"}));
}

TEST(LogQuery, FindsTextAndExpressionsWithTheirLines) {
  FakeLog log;
  for (int i = 1; i <= 100; ++i)
    log.add("step " + std::to_string(i) + (i % 10 == 0 ? " Needle\n" : "\n"));
  LineIndex index;
  LogQuery query{.kind = LogQuery::Kind::search, .text = "Needle"};
  EXPECT_EQ(ask(log, index, query).lines.size(), 10u);
  EXPECT_EQ(ask(log, index, query).lines.at(2),
            (std::pair<std::uint64_t, std::string>{30, "step 30 Needle"}));
  query.text = "needle";
  EXPECT_EQ(ask(log, index, query).lines.size(), 0u);
  query.any_case = true;
  EXPECT_EQ(ask(log, index, query).lines.size(), 10u);
  query = {.kind = LogQuery::Kind::search, .text = "^step \\d+5$", .regex = true};
  EXPECT_EQ(ask(log, index, query).lines.size(), 9u);
  query.lines_max = 4;
  const Lines part = ask(log, index, query);
  EXPECT_EQ(part.lines.size(), 4u);
  EXPECT_FALSE(part.answer.end);
  query.from_byte = part.answer.next_byte;
  query.lines_max = 100;
  EXPECT_EQ(ask(log, index, query).lines.size(), 5u) << "continued without a gap";
}

TEST(LogQuery, ExpressionsThatCouldTakeForEverAreRefused) {
  for (const char* bad : {"(a{1,255}){1,255}", "(a)\\1", "(", "*a\\"}) {
    const LogQuery query{.kind = LogQuery::Kind::search, .text = bad, .regex = true};
    if (std::string_view(bad) != "*a\\")
      EXPECT_FALSE(check_query(query)) << bad;
    else
      (void)check_query(query);  // must not read beyond its end
  }
  EXPECT_TRUE(check_query({.kind = LogQuery::Kind::search, .text = "a{", .regex = false}));
}

TEST(LogQuery, WhatRotationRemovedIsNotCountedAgain) {
  FakeLog log;
  for (int i = 1; i <= 40; ++i)
    log.add("line " + std::to_string(i) + "\n");
  log.first = log.records[20];
  LineIndex index;
  const Lines all = ask(log, index, {.lines_max = 2});
  EXPECT_EQ(all.lines.at(0).second, "line 21");
  EXPECT_EQ(all.answer.lost_bytes, log.records[20]);
}

// Any cut into records, any piece size, any window: the same lines as in the text.
TEST(LogQuery, AgreesWithTheTextHoweverItIsCut) {
  Rng rng(7);
  for (int round = 0; round < 200; ++round) {
    std::string text;
    std::vector<std::string> lines(1);
    for (std::uint64_t i = 0, n = rng.below(300); i < n; ++i) {
      const char c = rng.below(8) == 0 ? '\n' : static_cast<char>('a' + rng.below(3));
      text += c;
      if (c == '\n')
        lines.emplace_back();
      else
        lines.back() += c;
    }
    FakeLog log;
    log.piece_records = 1 + rng.below(5);
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t size = std::min<std::size_t>(1 + rng.below(20), text.size() - at);
      log.add(std::string_view(text).substr(at, size));
      at += size;
    }
    if (lines.back().empty())
      lines.pop_back();
    LineIndex index;
    const std::uint64_t from = 1 + rng.below(lines.size() + 1);
    const std::size_t most = 1 + rng.below(10);
    const Lines got = ask(log, index, {.from_line = from, .lines_max = most});
    Pairs want;
    for (std::size_t n = from; n <= lines.size() && want.size() < most; ++n)
      want.emplace_back(n, lines[n - 1]);
    EXPECT_EQ(got.lines, want) << "round " << round << " from " << from;
    Pairs matching;
    for (std::size_t n = 1; n <= lines.size(); ++n)
      if (lines[n - 1].find("ab") != std::string::npos)
        matching.emplace_back(n, lines[n - 1]);
    LogQuery query{.kind = LogQuery::Kind::search, .text = "ab"};
    EXPECT_EQ(ask(log, index, query).lines, matching) << "round " << round;
    if (!got.items.empty()) {
      const std::uint64_t place = got.items.back()["byte"].uint_or(0);
      const Lines again = ask(log, index, {.from_byte = place, .lines_max = 1});
      ASSERT_EQ(again.lines.size(), 1u);
      EXPECT_EQ(again.lines[0], got.lines.back()) << "round " << round;
    }
  }
}

}  // namespace
}  // namespace billow::wire
