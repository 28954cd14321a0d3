// Names of resources that can be addressed by name or by number: `billow logs train`,
// `--reservation demo`. A name that looks like a number would be ambiguous as soon as a resource
// with that number exists.
#pragma once

#include <string_view>

#include "base/result.h"

namespace billow {

// Like check_name, and rejects numbers ("12", or "12.3", which is an element of an array).
Status check_spoken_name(std::string_view what, std::string_view name);
// Whether the word consists of digits and dots only.
bool is_number_word(std::string_view word);

}  // namespace billow
