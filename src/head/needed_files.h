// Which uploaded trees must be kept because something may still start with them.
#pragma once

#include "core/control/state.h"
#include "files/store.h"

namespace billow::head {

files::Store::Needed needed_files(const control::State& state);

}  // namespace billow::head
