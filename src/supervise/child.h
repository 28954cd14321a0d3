// Starts the job: its terminal or pipes, its cgroups, its private /dev, its user, its limits, then
// exec.
//
// A failure before or at exec is reported through a pipe that exec closes, with the step and the
// errno, so that "no such program" is not mistaken for a program that exited with 127.
#pragma once

#include <sys/types.h>

#include "supervise/spec.h"

namespace billow::supervise {

struct StartFailure {
  int error;       // errno
  char step[200];  // "exec python3", "chdir /data", "enter cgroup /sys/…"
};

struct Child {
  pid_t pid = -1;
  int out = -1;      // stdout, or the terminal's master; non-blocking
  int err = -1;      // stderr; none with a terminal
  int in = -1;       // stdin's writing end, or a second descriptor of the terminal; -1 if stdin is
                     // /dev/null
  int failure = -1;  // reads one StartFailure, or end of file once exec succeeded
};

// 0, or an errno with what failed in `step`.
int start_child(const Spec& spec, Child* out, const char** step);
int resize_terminal(int master, std::uint16_t rows, std::uint16_t columns);

}  // namespace billow::supervise
