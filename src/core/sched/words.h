// Formats numbers and names in the scheduler's answers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace billow::sched {

std::string plural(std::int64_t n, std::string_view what);     // "1 node", "3 nodes"
std::string cards_are(const std::vector<std::string>& cards);  // "GPU 0 is", "GPUs 0, 1 are"
std::string gpus_text(std::int64_t milli);                     // "0.5", "4"
std::string size_text(std::int64_t mib);                       // "500 GiB", "512 MiB"
std::string sentence(std::string text);                        // capitalised, with a full stop

}  // namespace billow::sched
