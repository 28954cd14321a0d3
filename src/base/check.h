// Assertions for bugs, on in release: a wrong state stops the process, and the journal brings it
// back to a right one.
#pragma once

namespace billow {
[[noreturn]] void check_failed(const char* expression, const char* file, int line, const char* why);
}

#define BILLOW_CHECK(condition, why) \
  ((condition) ? (void)0 : ::billow::check_failed(#condition, __FILE__, __LINE__, why))
