// The store as a thing of its own.
#pragma once

#include "cli/commands.h"

namespace billow::cli {

// The database that --store, --store-file or the variables name; empty: none does.
Result<std::string> store_of(const Parsed& parsed, bool variables = true);

void add_store_commands(CommandTable& table);  // store migrate, backup, restore

}  // namespace billow::cli
