#include "base/spoken_name.h"

#include <fmt/format.h>

#include "base/text.h"

namespace billow {

bool is_number_word(std::string_view word) {
  return !word.empty() && word.find_first_not_of("0123456789.") == std::string_view::npos;
}

Status check_spoken_name(std::string_view what, std::string_view name) {
  BILLOW_TRY_VOID(check_name(what, name));
  if (!is_number_word(name))
    return {};
  return fail(Code::invalid,
              fmt::format("\"{}\" is no name for {} {}: commands would take it for a number", name,
                          what.find_first_of("aeiou") == 0 ? "an" : "a", what),
              fmt::format("add a letter, for example run-{}", name));
}

}  // namespace billow
