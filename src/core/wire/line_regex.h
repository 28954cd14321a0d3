// Regular expressions over the lines of a log, in time linear in the text whatever the expression.
// Members search each other's nodes with them, so none may take a node's time: there is no
// backtracking, and what an expression may cost is limited.
//
// Syntax: literals, . [] [^] | () (?:) ^ $ * + ? {n} {n,} {n,m}, \d \w \s and their negations, \t,
// and \ before punctuation. The whole question is whether a line has a match, so lazy repeats equal
// greedy ones. A character is one of UTF-8; case is folded for ASCII letters only.
//
// How: the expression becomes an automaton whose states are sets of places in the expression, made
// when they are first reached and thrown away when there are too many.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace billow::wire {

class LineRegex {
 public:
  static Result<LineRegex> compile(std::string_view expression, bool any_case);

  // The beginning of the first line at or after `at`, itself the beginning of one, that has a
  // match; npos: none. Fails if the automaton keeps growing: the limit is for this object's life.
  Result<std::size_t> find(std::string_view text, std::size_t at);

 private:
  friend class RegexParser;
  using Bytes = std::bitset<256>;
  struct Node {
    enum class Kind : std::uint8_t { bytes, split, begin, end, match };
    Kind kind = Kind::match;
    std::uint32_t set = 0;  // of `sets_`
    std::uint32_t out = 0, other = 0;
  };
  struct State {
    std::vector<std::uint32_t> nodes;  // sorted; those that wait for a byte or for the line's end
    bool at_begin = false;
  };
  struct Closure {
    std::vector<std::uint32_t> nodes;
    bool matched = false;
  };

  LineRegex() = default;
  void make_classes();
  Closure close(std::vector<std::uint32_t> from, bool at_begin, bool at_end);
  std::int32_t state_of(Closure closure, bool at_begin);
  std::int32_t step(std::int32_t state, std::uint8_t cls);
  bool matches_at_end(std::int32_t state);
  void restart();
  bool spent() const { return work_ > work_max; }

  static constexpr std::uint64_t work_max = 40'000'000;  // steps: about a fifth of a second
  static constexpr std::size_t held_max = 500'000;       // nodes of states and entries of the table
  static constexpr std::int32_t unknown = -1, line_end = -2, hit = -3;

  std::vector<Node> nodes_;
  std::vector<Bytes> sets_;
  std::uint32_t start_ = 0;
  std::array<std::uint8_t, 256> class_of_{};
  std::vector<std::uint8_t> byte_of_class_;
  std::uint8_t newline_class_ = 0;

  std::vector<State> states_;
  std::vector<std::int32_t> table_;   // state × class
  std::vector<std::int8_t> at_ends_;  // per state: 1 matches at the line's end, 0 not, -1 unknown
  std::map<std::string, std::int32_t> known_;
  std::vector<std::uint32_t> seen_;  // per node: the closure that saw it last
  std::uint32_t closure_number_ = 0;
  std::uint64_t work_ = 0;
  std::size_t held_ = 0;
};

}  // namespace billow::wire
