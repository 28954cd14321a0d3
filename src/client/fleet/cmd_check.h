// Measuring links and networks.
#pragma once

#include "client/frame/commands.h"

namespace billow::client {

void add_check_commands(CommandTable& table);  // check fabric

}  // namespace billow::client
