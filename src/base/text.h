// Parses and formats what people type and read: durations, sizes, numbers, lists, names.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace billow {

// "90s", "15m", "2h", "1d", "1h30m", "500ms", "02:00:00", or a bare number of seconds.
Result<Duration> parse_duration(std::string_view text);
// "1.5 s", "12m 3s", "2h 5m", "3d 4h": two units at most.
std::string format_duration(Duration d);

// "20G", "512M", "1.5T", "1073741824" → bytes. K, M, G, T are powers of 1024 (also KiB, MB …:
// memory is counted in powers of 1024 here).
Result<std::uint64_t> parse_bytes(std::string_view text);
std::string format_bytes(std::uint64_t bytes);  // "1.5 GiB"

Result<std::int64_t> parse_int(std::string_view text, std::int64_t min, std::int64_t max);
// "0.5", "-3", "1e6": a finite decimal number between `min` and `max`. The whole text must be the
// number: spaces, a leading '+', "nan", "inf", hexadecimal digits and trailing text are errors.
Result<double> parse_double(std::string_view text,
                            double min = std::numeric_limits<double>::lowest(),
                            double max = std::numeric_limits<double>::max());
// "0.25" → 250, "2" → 2000. At most three decimals.
Result<std::int64_t> parse_milli(std::string_view text);

std::vector<std::string> split(std::string_view text, char separator);  // "" → {""}
std::string_view trim(std::string_view text);
std::string join(const std::vector<std::string>& parts, std::string_view separator);
std::string lower(std::string_view text);
bool starts_with_nocase(std::string_view text, std::string_view prefix);

// Names of jobs, projects, pools and endpoints: 1–63 of [A-Za-z0-9._-], starting with a letter or
// digit.
Status check_name(std::string_view what, std::string_view name);
bool valid_utf8(std::string_view text);
// The length in bytes (1 to 4) of the UTF-8 character at `at`, or 0 if it is not valid UTF-8.
std::size_t utf8_letter(std::string_view text, std::size_t at);
// Replaces each invalid byte with U+FFFD.
std::string repaired_utf8(std::string_view text);
// The longest prefix of at most `bytes_max` bytes that does not cut a character: a cut character
// can be neither stored nor sent.
std::string_view utf8_prefix(std::string_view text, std::size_t bytes_max);
// The candidate closest to the typed word, or empty if none is close: for "did you mean".
std::string nearest(std::string_view typed, const std::vector<std::string>& candidates);

// Quotes a word for a POSIX shell if needed.
std::string shell_quote(std::string_view word);
std::string shell_join(const std::vector<std::string>& argv);

}  // namespace billow
