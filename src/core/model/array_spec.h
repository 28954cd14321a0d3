// Which indices the elements of an array have. `--array 1,5-9:2%4` is a set, as in Slurm: an index
// that is named twice exists once, and elements are in the order of their indices. The set is kept
// as ascending ranges, so that 0-99999 stays as short as it was written. A plain range has only
// the members that it always had: `more` is empty.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace billow {

// The indices first, first + step, … up to last.
struct IndexRange {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  std::uint64_t step = 1;
  std::uint64_t count() const { return (last - first) / step + 1; }
  std::uint64_t highest() const { return first + (count() - 1) * step; }
  bool operator==(const IndexRange&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("first", s.first);
    v("last", s.last);
    v("step", s.step);
  }
};

// At most `running_max` elements at a time (0: no limit).
struct ArraySpec {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  std::uint64_t step = 1;
  std::uint64_t running_max = 0;
  std::vector<IndexRange> more;  // ascending, each above the one before

  IndexRange range() const { return {first, last, step}; }  // the lowest
  std::uint64_t count() const;
  std::vector<std::uint64_t> indices() const;
  std::uint64_t highest() const { return more.empty() ? range().highest() : more.back().highest(); }
  // Which element has this index, counted from 0.
  std::optional<std::uint64_t> position_of(std::uint64_t index) const;
  // As parse_array reads it.
  std::string text() const;
  bool operator==(const ArraySpec&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("first", s.first);
    v("last", s.last);
    v("step", s.step);
    v("running_max", s.running_max);
    v("more", s.more);
  }
};

// "0-99", "0-99%10", "1-9:2", "1,5,7", "1,5-9:2%4"
Result<ArraySpec> parse_array(std::string_view text);
// The array with these indices, in any order; not for none.
ArraySpec array_of(std::vector<std::uint64_t> indices);
// Of a specification that came from outside: its ranges ascend, and its size is allowed.
Status check_indices(const ArraySpec& spec);

}  // namespace billow
