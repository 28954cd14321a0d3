// What a node keeps of a head that it leaves for another one: task directories and the head's
// epoch. Another head counts tasks and epochs from one, so both would be mistaken for its own.
#pragma once

#include <string>

#include "base/result.h"

namespace billow::agent {

std::string memory_file(const std::string& data_dir);  // the epoch and other memory of the agent
// Code::unavailable while tasks of that head run here.
Status check_tasks_ended(const std::string& data_dir);
Status forget_earlier_head(const std::string& data_dir);

}  // namespace billow::agent
