// Long text on a terminal.
#pragma once

#include <string>

namespace billow::client {

// Through $PAGER or less on a terminal, so that a long text begins at its top; `less -F` prints a
// short one and ends. Elsewhere, and with PAGER= (empty), it is printed.
void show_paged(const std::string& text);

}  // namespace billow::client
