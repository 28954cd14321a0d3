// A log line with named fields, so that a program finds "request_id" without parsing the sentence.
// In text output they follow the sentence as name=value. Separate from log.h because few need it.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "base/log.h"

namespace billow {

using LogField = std::pair<std::string_view, std::string>;
// Names are lower_snake_case and must not be time, level, component or message. Values must not be
// secrets.
void log_line(LogLevel level, std::string_view message, std::initializer_list<LogField> fields);

}  // namespace billow
