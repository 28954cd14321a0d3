// Assertions for bugs, enabled in release builds: an inconsistent state stops the process, and the
// journal restores a consistent one.
#pragma once

namespace billow {
[[noreturn]] void check_failed(const char* expression, const char* file, int line, const char* why);
}

#define BILLOW_CHECK(condition, why) \
  ((condition) ? (void)0 : ::billow::check_failed(#condition, __FILE__, __LINE__, why))
