// The helper's socket: one loop, one message at a time.
#pragma once

#include <string>

#include "base/result.h"
#include "privileged/helper/helper.h"

namespace billow::privileged {

// Runs until SIGTERM or SIGINT. Tasks live on, and the next helper finds them by their directories.
Status serve(Helper::Options options);

}  // namespace billow::privileged
