// What the client needs of an operating system where Linux and macOS differ, by one name.
// platform_linux.cpp and platform_darwin.cpp say how; nothing else in the house asks which system
// it is built for. (The server is Linux's alone and calls it directly.)
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace billow::platform {

// Nanoseconds since some moment of this boot, the time asleep included.
std::int64_t boot_clock_ns();
// Up to `size` unguessable bytes; how many it were, or -1 with errno.
std::int64_t random_bytes(char* out, std::size_t size);
// A pipe that programs we start do not inherit. 0, or -1 with errno.
int make_pipe(int ends[2]);
// The file of this program; empty where the system does not say.
std::string this_program();
// The whole of the text as a number, rounded correctly whatever the locale. False where it is none.
bool read_double(const std::string& text, double& out);
// "SEGV" of 11; empty where there is no such signal.
std::string signal_name(int number);
std::int64_t modified_ns(const struct ::stat& info);
std::int64_t changed_ns(const struct ::stat& info);

}  // namespace billow::platform
