// A line of the product's own log with members of its own, so that a machine finds "request_id"
// without reading the sentence. For people they follow the sentence as name=value. Apart from log.h
// because few need it.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "base/log.h"

namespace billow {

using LogField = std::pair<std::string_view, std::string>;
// Names are lower_snake_case and none of time, level, component and message. Values are never
// secrets.
void log_line(LogLevel level, std::string_view message, std::initializer_list<LogField> fields);

}  // namespace billow
