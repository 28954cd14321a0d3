// Commands around identity providers and lists of users from elsewhere.
#pragma once

#include "client/frame/command.h"

namespace billow::client {

void add_auth_commands(CommandTable& table);      // auth add, list, rm
void add_user_sync_command(CommandTable& table);  // user sync

}  // namespace billow::client
