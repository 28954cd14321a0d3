// Commands that other systems are driven by (Slurm, a script that creates machines): run to the end
// with a time limit, or started and left running.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/limits.h"
#include "base/result.h"

namespace billow::process {

struct CommandSpec {
  std::vector<std::string> argv;
  std::map<std::string, std::string> env;  // in addition to ours
  std::string input;
  Duration timeout = limits::pool_command_timeout;
};
struct CommandResult {
  int code = 0;  // 128 + signal if a signal ended it
  std::string out;
  std::string err;
  bool cut = false;  // `out` is only the beginning of what it printed
  // The last line of its output that reports a problem, to be quoted in an error. Never empty.
  std::string complaint() const;
};
// An error only if it could not be started or took too long: it is then killed with its process
// group.
Result<CommandResult> run_command(const CommandSpec& spec);

// A program that keeps running after we end, in a session of its own. Returns when it has written
// its first line or has ended. Its later output is lost; its standard error goes into a file.
struct StartSpec {
  std::vector<std::string> argv;
  std::string input;
  std::string complaints;  // the file
  // Without a line for this long it is terminated, after two more seconds killed; Code::timed_out.
  Duration patience = seconds(10);
};
struct StartedCommand {
  int pid = 0;          // 0: it has ended
  CommandResult ended;  // how, then; `err` is the content of the file
};
Result<StartedCommand> start_command(const StartSpec& spec);

}  // namespace billow::process
