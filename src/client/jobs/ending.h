// The end of jobs: waiting for it, and `billow stop`.
#pragma once

#include <optional>
#include <string>

#include "client/frame/command.h"
#include "client/frame/connect.h"

namespace billow::client {

// The document of a job that has ended, or that was current when the time was over. A head that
// restarts is waited for. `answered` is whether one has answered before: where none ever did, there
// is nothing to wait for. A person at a terminal sees how far it is.
Result<Json> wait_for_end(Client& client,
                          const std::string& label,
                          std::optional<SteadyTime> deadline,
                          bool answered,
                          bool quiet = true);

// stop and cancel.
void add_stop_commands(CommandTable& table);

}  // namespace billow::client
