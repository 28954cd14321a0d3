// The first process of a container with process ids of its own: starts the job's command, passes
// signals on to it, waits for what the command leaves behind, and ends with the command's result.
// The kernel gives the first process of such a container no signal that it does not handle, so a
// job's own program cannot be that process: SIGTERM would not end it.
#pragma once

namespace billow::supervise {

inline constexpr char init_word[] = "init";
// argv: the program's name, "init", and the command.
int run_as_init(int argc, char** argv);

}  // namespace billow::supervise
