// Which texts the log of a job must not show: the values of its secrets, and forms in which
// programs print them.
#pragma once

#include <string>
#include <vector>

#include "core/model/surroundings.h"

namespace billow::agent {

// As supervise/redactor.h reads them; empty: nothing is redacted. For each value: itself without
// the line break at its end, its base64 form, and, if it has several lines, each line that is not
// short.
std::string redacted_values(const std::vector<GivenSecret>& secrets);

}  // namespace billow::agent
