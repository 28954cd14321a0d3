// Removes trees that users could write to.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"

namespace billow {

// For a tree that a user could write to, removed by root. That user may have moved a directory of
// somebody else into it (which takes only the right to write it) although only its owner may remove
// what it holds. So a directory is entered only if the directory above it has the same owner or is
// the caller's own. Others are left, with an error; the rest is removed. `owner`: the tree is left
// too if it belongs to somebody else.
Status remove_tree_of_user(const std::string& path, std::optional<unsigned> owner = std::nullopt);

}  // namespace billow
