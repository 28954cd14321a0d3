// A job's variables while Billow's own programs run in front of its command, outside its container.
// Variables of the job must not reach these programs: LD_PRELOAD, for example, would run the job's
// code there, without the container. So the agent holds them under other names, and the last of
// these programs gives them back to the command.
#pragma once

#include <string>
#include <vector>

namespace billow {

// "NAME=value" each. Held are all except those that Billow's programs read and that cannot change
// how a program is loaded.
std::vector<std::string> hold_variables(std::vector<std::string> env);
// The variables as the job's command sees them.
std::vector<std::string> shown_variables(std::vector<std::string> env);

}  // namespace billow
