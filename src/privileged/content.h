// What travels beside a message: memory that its sender can no longer change. Whoever receives it
// checks that, because a pipe or a file of the sender's could block a reader, or change while it is
// read.
#pragma once

#include <string>

#include "base/file.h"
#include "base/result.h"

namespace billow::privileged {

// The content of a sealed memory; an error for any other kind of descriptor, for memory that can
// still change, and for more than `bytes_max`.
Result<std::string> read_content(const Fd& memory, std::size_t bytes_max);

}  // namespace billow::privileged
