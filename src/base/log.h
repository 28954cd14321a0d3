// Billow's own log: one line per event on stderr, as text or JSON. A line says what happened and
// may carry fields; it never contains secrets.
#pragma once

#include <fmt/format.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace billow {

enum class LogLevel { debug, info, warn, error };
struct LogOptions {
  LogLevel level = LogLevel::info;
  bool json = false;
  std::string component;  // "head", "agent", "gateway": which process writes
};
void configure_log(LogOptions options);
bool log_enabled(LogLevel level);
void log_line(LogLevel level, std::string_view message);

template <class... Args>
void log_debug(fmt::format_string<Args...> f, Args&&... args) {
  if (log_enabled(LogLevel::debug))
    log_line(LogLevel::debug, fmt::format(f, std::forward<Args>(args)...));
}
template <class... Args>
void log_info(fmt::format_string<Args...> f, Args&&... args) {
  if (log_enabled(LogLevel::info))
    log_line(LogLevel::info, fmt::format(f, std::forward<Args>(args)...));
}
template <class... Args>
void log_warn(fmt::format_string<Args...> f, Args&&... args) {
  if (log_enabled(LogLevel::warn))
    log_line(LogLevel::warn, fmt::format(f, std::forward<Args>(args)...));
}
template <class... Args>
void log_error(fmt::format_string<Args...> f, Args&&... args) {
  if (log_enabled(LogLevel::error))
    log_line(LogLevel::error, fmt::format(f, std::forward<Args>(args)...));
}

// A line with named fields, so that a program finds "request_id" without parsing the sentence. In
// text output they follow the sentence as name=value.
using LogField = std::pair<std::string_view, std::string>;
// Names are lower_snake_case and must not be time, level, component or message. Values must not be
// secrets.
void log_line(LogLevel level, std::string_view message, std::initializer_list<LogField> fields);

}  // namespace billow
