// Measuring links and networks.
#pragma once

#include "cli/commands.h"

namespace billow::cli {

void add_check_commands(CommandTable& table);  // check fabric

}  // namespace billow::cli
