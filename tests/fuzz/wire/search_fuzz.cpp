// libFuzzer over what members may search logs with: the first line is a regular expression, the
// rest the text. A match is a beginning of a line, and is found again from there.
#include <algorithm>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "core/wire/line_regex.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto cut = std::min(bytes.find('\n'), bytes.size());
  const std::string_view text = bytes.substr(std::min(cut + 1, bytes.size()));
  for (const bool any_case : {false, true}) {
    auto regex = billow::wire::LineRegex::compile(bytes.substr(0, cut), any_case);
    if (!regex)
      continue;
    std::size_t at = 0;
    for (int found = 0; at < text.size() && found < 64; ++found) {
      const auto match = regex->find(text, at);
      if (!match || *match == text.npos)
        break;
      BILLOW_CHECK(*match >= at && *match < text.size(), "inside the text");
      BILLOW_CHECK(*match == 0 || text[*match - 1] == '\n', "the beginning of a line");
      const auto again = regex->find(text, *match);
      BILLOW_CHECK(!again || *again == *match, "found again");
      const auto end = text.find('\n', *match);
      at = end == text.npos ? text.size() : end + 1;
    }
  }
  return 0;
}
