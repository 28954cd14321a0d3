#include "base/text.h"

#include <fmt/format.h>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/append_format.h"
#include "base/platform.h"

namespace billow {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// "1.5" → whole part and fraction in nano; false if it is not a plain decimal.
bool read_decimal(std::string_view& text, std::int64_t& whole, std::int64_t& nano) {
  std::size_t i = 0;
  whole = 0;
  nano = 0;
  while (i < text.size() && is_digit(text[i])) {
    if (whole > 1'000'000'000'000'000)
      return false;
    whole = whole * 10 + (text[i++] - '0');
  }
  const bool has_whole = i > 0;
  if (i < text.size() && text[i] == '.') {
    std::int64_t unit = 100'000'000;
    const std::size_t first = ++i;
    for (; i < text.size() && is_digit(text[i]); ++i) {
      nano += (text[i] - '0') * unit;
      unit /= 10;
    }
    if (i == first)
      return false;
  } else if (!has_whole) {
    return false;
  }
  text.remove_prefix(i);
  return true;
}

// The unit at the front of the text in nanoseconds; a second if the text has ended.
std::optional<std::int64_t> take_time_unit(std::string_view& text) {
  constexpr std::int64_t second = 1'000'000'000;
  static constexpr std::pair<std::string_view, std::int64_t> units[] = {
      {"ms", 1'000'000},        {"us", 1'000},        {"s", second},
      {"m", 60 * second},       {"h", 3600 * second}, {"d", 86400 * second},
      {"w", 7 * 86400 * second}};
  if (text.empty())
    return second;
  for (const auto& [name, ns] : units)
    if (text.starts_with(name)) {
      text.remove_prefix(name.size());
      return ns;
    }
  return std::nullopt;
}

}  // namespace

Result<Duration> parse_duration(std::string_view text) {
  const auto bad = [shown = std::string(text)] {
    return fail(Code::invalid, "not a duration: \"" + shown + "\"",
                "use a form like 90s, 15m, 2h, 1h30m or 1d");
  };
  constexpr __int128 max_ns =
      static_cast<__int128>(366) * 100 * 86400 * 1'000'000'000;  // a century is enough
  if (text.find(':') != std::string_view::npos) {                // hh:mm:ss or mm:ss
    std::int64_t total = 0;
    const auto parts = split(text, ':');
    if (parts.size() > 3)
      return bad();
    for (const auto& part : parts) {
      const auto n = parse_int(part, 0, 100'000);
      if (!n)
        return bad();
      total = total * 60 + *n;
    }
    return seconds(total);
  }
  __int128 total = 0;
  if (text.empty())
    return bad();
  while (!text.empty()) {
    std::int64_t whole = 0, nano = 0;
    if (!read_decimal(text, whole, nano))
      return bad();
    const auto unit = take_time_unit(text);
    if (!unit)
      return bad();
    const std::int64_t unit_ns = *unit;
    total += static_cast<__int128>(whole) * unit_ns +
             static_cast<__int128>(nano) * unit_ns / 1'000'000'000;
    if (total > max_ns)
      return bad();
  }
  return nanoseconds(static_cast<std::int64_t>(total));
}

std::string format_duration(Duration d) {
  if (d.ns < 0)
    return "-" + format_duration({-d.ns});
  if (d < milliseconds(1))
    return fmt::format("{} us", d.ns / 1000);
  if (d < seconds(1))
    return fmt::format("{} ms", d.ms());
  if (d < seconds(10))
    return fmt::format("{:.1f} s", d.seconds());
  const std::int64_t s = d.ns / 1'000'000'000;
  if (s < 60)
    return fmt::format("{}s", s);
  if (s < 3600)
    return s % 60 ? fmt::format("{}m {}s", s / 60, s % 60) : fmt::format("{}m", s / 60);
  if (s < 86400)
    return s / 60 % 60 ? fmt::format("{}h {}m", s / 3600, s / 60 % 60)
                       : fmt::format("{}h", s / 3600);
  return s / 3600 % 24 ? fmt::format("{}d {}h", s / 86400, s / 3600 % 24)
                       : fmt::format("{}d", s / 86400);
}

Result<std::uint64_t> parse_bytes(std::string_view text) {
  const auto bad = [shown = std::string(text)] {
    return fail(Code::invalid, "not a size: \"" + shown + "\"",
                "use a form like 512M, 20G or 1.5T");
  };
  std::int64_t whole = 0, nano = 0;
  if (!read_decimal(text, whole, nano))
    return bad();
  int shift = 0;
  if (!text.empty()) {
    const std::size_t at = std::string_view("kmgtp").find(lower(text.substr(0, 1)));
    if (at != std::string_view::npos) {
      shift = 10 * (static_cast<int>(at) + 1);
      text.remove_prefix(1);
      if (text.starts_with('i'))
        text.remove_prefix(1);
    }
    if (text.starts_with('B') || text.starts_with('b'))
      text.remove_prefix(1);
    if (!text.empty())
      return bad();
  }
  const __int128 bytes = (static_cast<__int128>(whole) << shift) +
                         ((static_cast<__int128>(nano) << shift) / 1'000'000'000);
  if (bytes > static_cast<__int128>(1) << 60)
    return bad();
  return static_cast<std::uint64_t>(bytes);
}

std::string format_bytes(std::uint64_t bytes) {
  static constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double v = static_cast<double>(bytes);
  int unit = 0;
  for (; v >= 1024 && unit < 5; ++unit)
    v /= 1024;
  if (unit == 0)
    return fmt::format("{} B", bytes);
  return v >= 100 || v == static_cast<double>(static_cast<std::uint64_t>(v))
             ? fmt::format("{:.0f} {}", v, units[unit])
             : fmt::format("{:.1f} {}", v, units[unit]);
}

Result<std::int64_t> parse_int(std::string_view text, std::int64_t min, std::int64_t max) {
  std::int64_t value = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec != std::errc{} || end != text.data() + text.size() || text.empty())
    return fail(Code::invalid, fmt::format("not a whole number: \"{}\"", text));
  if (value < min || value > max)
    return fail(Code::invalid, fmt::format("{} is out of range: {} to {}", value, min, max));
  return value;
}

Result<double> parse_double(std::string_view text, double min, double max) {
  // The systems' parsers differ in what else they accept ("0x1p3", " 1", "+1", "nan").
  const bool decimal = text.find_first_not_of("0123456789.-+eE") == std::string_view::npos;
  double value = 0;
  if (!decimal || text.starts_with('+') || !platform::read_double(std::string(text), value) ||
      !std::isfinite(value))
    return fail(Code::invalid, fmt::format("not a number: \"{}\"", text));
  if (value < min || value > max) {
    if (max == std::numeric_limits<double>::max())
      return fail(Code::invalid, fmt::format("{} is out of range: at least {}", value, min));
    return fail(Code::invalid, fmt::format("{} is out of range: {} to {}", value, min, max));
  }
  return value;
}

Result<std::int64_t> parse_milli(std::string_view text) {
  const std::string shown(text);
  std::int64_t whole = 0, nano = 0;
  if (!read_decimal(text, whole, nano) || !text.empty() || nano % 1'000'000 != 0 ||
      whole > 1'000'000)
    return fail(Code::invalid, "not a number with at most three decimals: \"" + shown + "\"");
  return whole * 1000 + nano / 1'000'000;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  std::size_t start = 0;
  while (true) {
    const std::size_t at = text.find(separator, start);
    parts.emplace_back(text.substr(start, at == std::string_view::npos ? at : at - start));
    if (at == std::string_view::npos)
      return parts;
    start = at + 1;
  }
}

std::string_view trim(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos)
    return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string out;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i)
      out += separator;
    out += parts[i];
  }
  return out;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z')
      c = static_cast<char>(c - 'A' + 'a');
  return out;
}

bool starts_with_nocase(std::string_view text, std::string_view prefix) {
  return text.size() >= prefix.size() && lower(text.substr(0, prefix.size())) == lower(prefix);
}

Status check_name(std::string_view what, std::string_view name) {
  const auto alnum = [](char c) {
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  };
  const bool ok = !name.empty() && name.size() <= 63 && alnum(name.front()) &&
                  std::all_of(name.begin(), name.end(),
                              [&](char c) { return alnum(c) || c == '.' || c == '_' || c == '-'; });
  if (ok)
    return {};
  return fail(
      Code::invalid, fmt::format("\"{}\" is not a valid {} name", name, what),
      "use 1 to 63 letters, digits, dots, underscores or dashes, starting with a letter or digit");
}

std::size_t utf8_letter(std::string_view text, std::size_t at) {
  const auto c = static_cast<unsigned char>(text[at]);
  std::size_t more = 0;
  std::uint32_t point = 0;
  if (c < 0x80)
    return 1;
  if ((c & 0xe0) == 0xc0) {
    more = 1;
    point = c & 0x1f;
  } else if ((c & 0xf0) == 0xe0) {
    more = 2;
    point = c & 0x0f;
  } else if ((c & 0xf8) == 0xf0) {
    more = 3;
    point = c & 0x07;
  } else {
    return 0;
  }
  if (at + more >= text.size())
    return 0;
  for (std::size_t k = 1; k <= more; ++k) {
    const auto d = static_cast<unsigned char>(text[at + k]);
    if ((d & 0xc0) != 0x80)
      return 0;
    point = (point << 6) | (d & 0x3f);
  }
  static constexpr std::uint32_t least[] = {0, 0x80, 0x800, 0x10000};
  if (point < least[more] || point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff))
    return 0;
  return more + 1;
}

bool valid_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t letter = utf8_letter(text, i);
    if (letter == 0)
      return false;
    i += letter;
  }
  return true;
}

std::string repaired_utf8(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t letter = utf8_letter(text, i);
    out += letter ? text.substr(i, letter) : std::string_view("\xef\xbf\xbd");
    i += std::max<std::size_t>(letter, 1);
  }
  return out;
}

std::string_view utf8_prefix(std::string_view text, std::size_t bytes_max) {
  if (text.size() <= bytes_max)
    return text;
  std::size_t end = bytes_max;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80)
    --end;
  return text.substr(0, end);
}

std::string nearest(std::string_view typed, const std::vector<std::string>& candidates) {
  // Requests contain such words, and the work grows with the product of both lengths.
  constexpr std::size_t word_bytes_max = 128;
  if (typed.size() > word_bytes_max)
    return {};
  const std::string a = lower(typed);
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(1, a.size() / 3) + 1;
  for (const auto& candidate : candidates) {
    if (candidate.size() >= a.size() + best_distance)
      continue;  // so many letters are missing
    const std::string b = lower(candidate);
    // Edit distance in which two swapped letters count as one mistake: people type "rnu".
    std::vector<std::size_t> before, last, row(b.size() + 1);
    for (std::size_t j = 0; j <= b.size(); ++j)
      row[j] = j;
    for (std::size_t i = 1; i <= a.size(); ++i) {
      before = std::move(last);
      last = row;
      row[0] = i;
      for (std::size_t j = 1; j <= b.size(); ++j) {
        row[j] =
            std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
        if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
          row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    if (row.back() < best_distance) {
      best_distance = row.back();
      best = candidate;
    }
  }
  return best;
}

std::string shell_quote(std::string_view word) {
  const bool plain =
      !word.empty() &&
      word.find_first_not_of(
          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:,@%+") ==
          std::string_view::npos;
  if (plain)
    return std::string(word);
  std::string out = "'";
  for (char c : word) {
    if (c == '\'')
      out += "'\\''";
    else
      out += c;
  }
  return out + "'";
}

std::string shell_join(const std::vector<std::string>& argv) {
  std::string out;
  for (const auto& word : argv) {
    if (!out.empty())
      out += ' ';
    out += shell_quote(word);
  }
  return out;
}

void append_formatted(std::string& out, fmt::string_view format, fmt::format_args args) {
  fmt::vformat_to(std::back_inserter(out), format, args);
}

}  // namespace billow
