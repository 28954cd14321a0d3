// What a job's node is to bring beside the command, as variables of the job's environment: the environment is stored once per content,
// travels with every start, and is part of what makes a run repeatable. A person cannot set them by hand: the command line takes out
// what is inherited and writes its own.
#pragma once

namespace billow::surroundings {

inline constexpr const char* files = "BILLOW_FILES";      // digest of the tree that is its working directory
inline constexpr const char* outputs = "BILLOW_OUTPUTS";  // paths in it that are kept when it ends, one a line

}  // namespace billow::surroundings
