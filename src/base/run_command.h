// A program run to its end, for engines that are driven by their command line. Its standard input
// is a text, its output is kept up to a limit, and what takes too long is killed with everything it
// started.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/limits.h"
#include "base/result.h"

namespace billow {

struct CommandSpec {
  std::vector<std::string> argv;
  std::map<std::string, std::string> env;  // beside our own
  std::string input;
  Duration timeout = limits::pool_command_timeout;
};
struct CommandResult {
  int code = 0;  // 128 + signal where one ended it
  std::string out;
  std::string err;
  // The last line it complained with, for a sentence: never empty.
  std::string complaint() const;
};
// An error only where it could not be run or took too long.
Result<CommandResult> run_command(const CommandSpec& spec);

// A program that stays: started in a session of its own, it lives on when we end. Returned as soon
// as it has written its first line, or has ended without one. What it writes later goes nowhere,
// its complaints into a file.
struct StartedCommand {
  int pid = 0;          // 0: it has ended
  CommandResult ended;  // how, then; `err` is the file's content
};
struct StartSpec {
  std::vector<std::string> argv;
  std::string input;
  std::string complaints;  // the file
  Duration patience =
      seconds(10);  // without a line for this long it is ended, politely first; Code::timed_out
};
Result<StartedCommand> start_command(const StartSpec& spec);

}  // namespace billow
