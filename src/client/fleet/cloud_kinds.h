// What the commands about clouds share.
#pragma once

#include <string>

#include "client/frame/commands.h"

namespace billow::client {

// The kind of pool behind a cloud's name: "aws" is "ec2".
std::string kind_of_cloud(const std::string& cloud);

void add_cloud_head_command(CommandTable& table);  // cloud head

}  // namespace billow::client
