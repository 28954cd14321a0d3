// Labels of jobs: what they may be, and changes of them.
#pragma once

#include <map>
#include <string>

#include "base/result.h"
#include "core/model/event.h"

namespace billow::control {

// Names, sizes, and that none is Billow's own.
Status check_labels(const std::map<std::string, std::string>& labels);
void change_labels(std::map<std::string, std::string>& labels, const JobsLabelled& change);

}  // namespace billow::control
