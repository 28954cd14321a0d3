#include "core/sched/words.h"

#include <fmt/format.h>

#include <cctype>

#include "base/text.h"

namespace billow::sched {

std::string plural(std::int64_t n, std::string_view what) {
  return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}

std::string cards_are(const std::vector<std::string>& cards) {
  return fmt::format("GPU{} {} {}", cards.size() == 1 ? "" : "s", join(cards, ", "),
                     cards.size() == 1 ? "is" : "are");
}

std::string gpus_text(std::int64_t milli) {
  return fmt::format("{:g}", static_cast<double>(milli) / 1000);
}

// Rounded down, so that the largest size named is really available.
std::string size_text(std::int64_t mib) {
  if (mib < 1024)
    return fmt::format("{} MiB", mib);
  const std::int64_t tenths = mib * 10 / 1024;
  return fmt::format("{:g} GiB", static_cast<double>(tenths) / 10);
}

std::string sentence(std::string text) {
  if (text.empty())
    return text;
  text.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(text.front())));
  if (text.back() != '.')
    text += '.';
  return text;
}

}  // namespace billow::sched
