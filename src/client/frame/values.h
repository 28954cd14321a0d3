// Values of options as numbers, times and lists. An error names the option and what it accepts.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "client/frame/command.h"

namespace billow::client {

// The number of `--name`, or the fallback where it was not given.
Result<double> number_option(
    const Parsed& parsed, std::string_view name, double fallback, double min, double max);
Result<std::int64_t> int_option(const Parsed& parsed,
                                std::string_view name,
                                std::int64_t fallback,
                                std::int64_t min,
                                std::int64_t max);
// A time or a size. A bare number other than 0 is refused: `--time 60` means minutes to one who
// comes from Slurm, and `--mem 20` hardly means 20 bytes.
Result<Duration> duration_with_unit(std::string_view text);
Result<std::uint64_t> bytes_with_unit(std::string_view text);
// "24h" in whole seconds; nothing where it was not given.
Result<std::optional<std::int64_t>> seconds_option(const Parsed& parsed, std::string_view name);
// "500ms", "2s", "6h" in milliseconds, more than zero; nothing where it was not given.
Result<std::optional<double>> milliseconds_option(const Parsed& parsed, std::string_view name);
// "a, b" → {"a", "b"}.
std::vector<std::string> list_option(const Parsed& parsed, std::string_view name);
// One of "a,b,c" (the choices of the option's declaration), or the fallback.
Result<std::string> choice_option(const Parsed& parsed,
                                  std::string_view name,
                                  std::string_view fallback,
                                  std::string_view choices);
// The value of an option the command cannot do without.
Result<std::string> required_option(const Parsed& parsed,
                                    std::string_view name,
                                    std::string_view hint = {});

}  // namespace billow::client
