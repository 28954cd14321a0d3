// Figures as this screen writes them: short, and never longer than they must be.
#pragma once

#include <cstdint>
#include <string>

namespace billow::client::top {

std::string gpus_text(std::int64_t milli);      // "2", "0.50", "-"
std::string lasting(std::int64_t ms);           // "45s", "5m03s", "2h05m", "3d04h"
std::string per_hour(std::int64_t nano_per_s);  // "$2.08/h"
std::string usd(std::int64_t nano);             // "$1.23"
std::string percent(double value);              // "43%"; "-" where it is not known
std::string gibibytes(std::int64_t mib);        // "1.5G"; "-" where it is not known
std::string plural(std::int64_t n, const char* one, const char* many = nullptr);  // "3 jobs"

}  // namespace billow::client::top
