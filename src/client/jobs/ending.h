// The end of jobs: waiting for it, and `billow stop`.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "client/frame/command.h"
#include "client/frame/connect.h"

namespace billow::client {

// What Ctrl-C leaves: "no longer waiting; job 12 continues (`billow stop 12` would end it)".
std::string goes_on(std::string_view what, const std::vector<std::string>& jobs);

// The document of a job that has ended, or that was current when the time was over. A head that
// restarts is waited for. `answered` is whether one has answered before: where none ever did, there
// is nothing to wait for. A person at a terminal sees how far it is.
Result<Json> wait_for_end(Client& client,
                          const std::string& label,
                          std::optional<SteadyTime> deadline,
                          bool answered,
                          bool quiet = true);

// `billow wait`: says how each of them ended; the exit code of the first that failed.
int wait_for_jobs(const Parsed& parsed,
                  Client& client,
                  const std::vector<std::string>& jobs,
                  std::optional<SteadyTime> deadline);

// stop and cancel.
void add_stop_commands(CommandTable& table);

}  // namespace billow::client
