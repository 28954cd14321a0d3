// The store as a thing of its own.
#pragma once

#include "cli/commands.h"

namespace billow::cli {

void add_store_commands(CommandTable& table);  // store migrate, backup, restore

}  // namespace billow::cli
