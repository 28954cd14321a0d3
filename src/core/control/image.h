// An image that is read once and makes equal states again and again.
#pragma once

#include <functional>
#include <string_view>

#include "base/result.h"
#include "core/control/state.h"

namespace billow::control {

// What `restore` does, in two parts: the text is read now, each call makes a state.
Result<std::function<Result<State>()>> read_image(std::string_view text);

}  // namespace billow::control
