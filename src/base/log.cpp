#include "base/log.h"

#include <unistd.h>

#include <atomic>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/sync.h"

namespace billow {
namespace {

// The only process-wide state: the output of the log belongs to the process. Set once at start.
Sync<LogOptions>& options() {
  static Sync<LogOptions> value;
  return value;
}
std::atomic<LogLevel> threshold{LogLevel::info};

const char* level_name(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return "debug";
    case LogLevel::info:
      return "info";
    case LogLevel::warn:
      return "warn";
    case LogLevel::error:
      return "error";
  }
  return "info";
}

}  // namespace

void configure_log(LogOptions new_options) {
  threshold = new_options.level;
  *options().lock() = std::move(new_options);
}

bool log_enabled(LogLevel level) {
  return level >= threshold.load(std::memory_order_relaxed);
}

namespace {

// A line stays one line, and a terminal that shows it is safe: some of the text is a stranger's.
std::string one_line(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f)
      out += fmt::format("\\x{:02x}", byte);
    else
      out += c;
  }
  return out;
}

}  // namespace

void log_line(LogLevel level, std::string_view message) {
  log_line(level, message, {});
}

void log_line(LogLevel level, std::string_view message, std::initializer_list<LogField> fields) {
  auto locked = options().lock();
  const WallTime now = system_clock().wall();
  std::string line;
  if (locked->json) {
    Json object = Json::object({{"time", format_utc(now)},
                                {"level", level_name(level)},
                                {"component", locked->component},
                                {"message", message}});
    for (const auto& [name, value] : fields)
      object.set(name, value);
    line = object.dump();
  } else {
    line = fmt::format("{} {:<5} {}{}{}", format_utc(now), level_name(level), locked->component,
                       locked->component.empty() ? "" : ": ", one_line(message));
    for (const auto& [name, value] : fields)
      line += fmt::format(" {}={}", name, one_line(value));
  }
  line += '\n';
  (void)write_all(STDERR_FILENO, line);
}

}  // namespace billow
