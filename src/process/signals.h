// The signals of a new program: by system calls alone, safe between fork and exec of a process with
// threads, and free of the C++ library (billow-supervise uses it too).
#pragma once

#include <signal.h>

namespace billow::process {

// Handlers end at exec, but ignored and blocked signals are inherited: a program started by one
// that ignores SIGPIPE would never end when its reader does. With `keep_ignored`, signals that were
// ignored stay so (nohup), except SIGPIPE, which our programs ignore for themselves.
inline void reset_signals(bool keep_ignored = false) {
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction now {};
    if (keep_ignored && number != SIGPIPE && sigaction(number, nullptr, &now) == 0 &&
        now.sa_handler == SIG_IGN)
      continue;
    sigaction(number, &standard, nullptr);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

}  // namespace billow::process
