// Running a program to its end and keeping its output.
#pragma once

#include <string>

#include "process/spawn.h"

namespace billow::process {

struct Capture {
  // For its standard input; empty: as the request says. A caller that gives input ignores SIGPIPE.
  std::string input;
  std::size_t bytes_max = 4 << 20;  // kept of each stream
  bool keep_last = false;           // keep the end of longer output, not the beginning
  bool together = false;            // standard error goes into `out`
};
struct Output {
  Ended ended;
  std::string out, err;
  bool cut = false;  // `out` is not all that it printed
};

// Waits until the program has ended and closed its output; for seconds, if something that it left
// running in the background does not close it. At the request's deadline it is killed,
// and the output so far is returned with `ended.late`. Only a program that cannot be started is an
// error.
Result<Output> capture(Spawn request, const Capture& how = {});

}  // namespace billow::process
