// Names of things that also have numbers, where either may be said: `billow logs train`,
// `--reservation demo`. A name that is itself a number would stand for something else as soon as
// there is a thing of that number.
#pragma once

#include <string_view>

#include "base/result.h"

namespace billow {

// As check_name, and not a number ("12", or "12.3", which is an element of an array).
Status check_spoken_name(std::string_view what, std::string_view name);
// Digits and dots alone.
bool is_number_word(std::string_view word);

}  // namespace billow
