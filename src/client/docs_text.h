// A page of the documentation for a terminal: headings stand out, tables are aligned, code is
// indented, links are their words alone.
#pragma once

#include <string>
#include <string_view>

#include "client/frame/table.h"

namespace billow::client {

std::string docs_text(std::string_view markdown, const Look& look);

}  // namespace billow::client
