// What the commands about clouds share.
#pragma once

#include <string>
#include <string_view>

#include "client/frame/commands.h"

namespace billow::client {

// A cloud as commands name it: "Google" is "gcp".
std::string cloud_name(std::string_view text);
// The kind of pool behind a cloud's name: "aws" is "ec2".
std::string kind_of_cloud(const std::string& cloud);

void add_cloud_head_command(CommandTable& table);  // cloud head

}  // namespace billow::client
