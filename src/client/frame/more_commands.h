// Commands of connections and secrets, beside those of commands.h.
#pragma once

#include "client/frame/commands.h"

namespace billow::client {

void add_secret_commands(CommandTable& table);   // secret set, list, rm
void add_forward_commands(CommandTable& table);  // port-forward, ssh, ssh-config, ssh-proxy

}  // namespace billow::client
