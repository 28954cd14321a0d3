#include "core/model/array_spec.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/limits.h"
#include "base/text.h"

namespace billow {
namespace {

constexpr std::int64_t index_max = 1'000'000'000;

std::string range_text(const IndexRange& r) {
  if (r.first == r.last)
    return fmt::format("{}", r.first);
  return fmt::format("{}-{}{}", r.first, r.last, r.step == 1 ? "" : fmt::format(":{}", r.step));
}

// The longest run of equal distances that begins at `at`. Two indices with a gap between them are
// no run: "1,5" is easier to read than "1-5:4".
IndexRange run_at(const std::vector<std::uint64_t>& sorted, std::size_t at) {
  if (at + 1 == sorted.size())
    return {sorted[at], sorted[at], 1};
  const std::uint64_t step = sorted[at + 1] - sorted[at];
  std::size_t end = at + 1;
  while (end + 1 < sorted.size() && sorted[end + 1] - sorted[end] == step)
    ++end;
  if (end == at + 1 && step != 1)
    return {sorted[at], sorted[at], 1};
  return {sorted[at], sorted[end], step};
}

Result<std::uint64_t> number(std::string_view text, std::int64_t least, std::string_view what) {
  if (text.empty())
    return fail(Code::invalid, fmt::format("{} is missing", what));
  const auto n = parse_int(text, least, index_max);
  if (!n)
    return fail(Code::invalid, fmt::format("{}: {}", what, n.error().message));
  return static_cast<std::uint64_t>(*n);
}

// "5", "1-9", "1-9:2"
Result<IndexRange> parse_range(std::string_view text) {
  if (text.empty())
    return fail(Code::invalid, "an index is missing beside a comma");
  IndexRange range;
  const auto colon = text.find(':');
  const auto dash = text.substr(0, colon).find('-');
  if (colon != text.npos) {
    range.step = BILLOW_TRY(number(text.substr(colon + 1), 1, "the step after \":\""));
    if (dash == text.npos)
      return fail(Code::invalid, "a step needs a range such as 0-9:2");
  }
  const std::string_view ends = text.substr(0, colon);
  if (dash == 0)
    return fail(Code::invalid, "an index must not be negative");
  range.first = BILLOW_TRY(number(ends.substr(0, dash), 0, "the first index"));
  range.last = dash == ends.npos ? range.first
                                 : BILLOW_TRY(number(ends.substr(dash + 1), 0, "the last index"));
  if (range.last < range.first)
    return fail(Code::invalid,
                fmt::format("the last index, {}, is below the first, {}", range.last, range.first));
  return range;
}

Error too_many() {
  return {Code::invalid, fmt::format("more than {} elements", limits::array_elements_max)};
}

Result<ArraySpec> parse_parts(std::string_view text) {
  std::uint64_t running_max = 0;
  if (const auto at = text.find('%'); at != text.npos) {
    if (text.find(',', at) != text.npos)
      return fail(Code::invalid, "% limits the whole array, so it must come last");
    running_max = BILLOW_TRY(number(text.substr(at + 1), 1, "the limit after \"%\""));
    text = text.substr(0, at);
  }
  if (text.empty())
    return fail(Code::invalid, "the indices are missing");
  std::vector<IndexRange> ranges;
  std::uint64_t named = 0;
  for (const std::string& part : split(text, ',')) {
    ranges.push_back(BILLOW_TRY(parse_range(trim(part))));
    named += ranges.back().count();
    if (named > limits::array_elements_max)
      return std::unexpected(too_many());
  }
  ArraySpec spec;
  if (ranges.size() == 1) {
    spec.first = ranges.front().first;
    spec.last = ranges.front().last;
    spec.step = ranges.front().step;
  } else {
    std::vector<std::uint64_t> indices;
    for (const IndexRange& range : ranges)
      for (std::uint64_t i = 0; i < range.count(); ++i)
        indices.push_back(range.first + i * range.step);
    spec = array_of(std::move(indices));
  }
  spec.running_max = running_max;
  return spec;
}

}  // namespace

std::uint64_t ArraySpec::count() const {
  std::uint64_t sum = range().count();
  for (const IndexRange& each : more)
    sum += each.count();
  return sum;
}

std::vector<std::uint64_t> ArraySpec::indices() const {
  std::vector<std::uint64_t> out;
  out.reserve(count());
  const auto add = [&](const IndexRange& each) {
    for (std::uint64_t i = 0; i < each.count(); ++i)
      out.push_back(each.first + i * each.step);
  };
  add(range());
  for (const IndexRange& each : more)
    add(each);
  return out;
}

std::optional<std::uint64_t> ArraySpec::position_of(std::uint64_t index) const {
  std::uint64_t before = 0;
  const auto in = [&](const IndexRange& each) -> std::optional<std::uint64_t> {
    if (index >= each.first && index <= each.last && (index - each.first) % each.step == 0)
      return before + (index - each.first) / each.step;
    before += each.count();
    return std::nullopt;
  };
  if (const auto found = in(range()))
    return found;
  for (const IndexRange& each : more)
    if (const auto found = in(each))
      return found;
  return std::nullopt;
}

std::string ArraySpec::text() const {
  std::string out = range_text(range());
  for (const IndexRange& each : more)
    out += "," + range_text(each);
  if (running_max)
    out += fmt::format("%{}", running_max);
  return out;
}

ArraySpec array_of(std::vector<std::uint64_t> indices) {
  std::sort(indices.begin(), indices.end());
  indices.erase(std::unique(indices.begin(), indices.end()), indices.end());
  ArraySpec spec;
  for (std::size_t at = 0; at < indices.size();) {
    const IndexRange run = run_at(indices, at);
    if (at == 0) {
      spec.first = run.first;
      spec.last = run.last;
      spec.step = run.step;
    } else {
      spec.more.push_back(run);
    }
    at += run.count();
  }
  return spec;
}

Result<ArraySpec> parse_array(std::string_view text) {
  auto spec = parse_parts(trim(text));
  if (!spec)
    return fail(Code::invalid, fmt::format("--array {}: {}", text, spec.error().message),
                "examples: 0-99, 0-99%10 (at most ten at a time), 1-9:2, 1,5,7");
  return spec;
}

Status check_indices(const ArraySpec& spec) {
  const Error size(Code::invalid, fmt::format("an array must have between 1 and {} elements",
                                              limits::array_elements_max));
  std::uint64_t count = 0;
  std::optional<std::uint64_t> below;
  const auto check = [&](const IndexRange& each) -> Status {
    if (each.step == 0 || each.last < each.first || each.last > index_max)
      return std::unexpected(size);
    if (below && each.first <= *below)
      return fail(
          Code::invalid,
          fmt::format("the ranges of an array must ascend: {} comes after {}", each.first, *below),
          "sort the indices, and name each once");
    below = each.highest();
    count += each.count();
    return count > limits::array_elements_max ? Status(std::unexpected(size)) : Status();
  };
  BILLOW_TRY_VOID(check(spec.range()));
  for (const IndexRange& each : spec.more)
    BILLOW_TRY_VOID(check(each));
  return {};
}

}  // namespace billow
