// The operating-system calls that differ between Linux and macOS, under one name each, for the
// client. Only platform_linux.cpp and platform_darwin.cpp know which system they are built for.
// (The server runs on Linux only and calls it directly.)
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace billow::platform {

// Nanoseconds since boot, including time asleep.
std::int64_t boot_clock_ns();
// Fills up to `size` cryptographically random bytes. Returns their number, or -1 with errno.
std::int64_t random_bytes(char* out, std::size_t size);
// A pipe that child programs do not inherit. Returns 0, or -1 with errno.
int make_pipe(int ends[2]);
// The path of this program; empty if the system does not report it.
std::string this_program();
// Reads the whole text as a number, correctly rounded in any locale. False if it is not a number.
bool read_double(const std::string& text, double& out);
// 11 → "SEGV"; empty if there is no such signal.
std::string signal_name(int number);
std::int64_t modified_ns(const struct ::stat& info);
std::int64_t changed_ns(const struct ::stat& info);
// Freed buffers of some megabytes are reused instead of being returned to the system: pieces of
// files have that size, and fresh pages cost more than copying the pieces.
void reuse_large_buffers();

}  // namespace billow::platform
