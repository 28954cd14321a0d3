// Environments on the command line.
#pragma once

#include "client/frame/client.h"
#include "client/request/job_request.h"

namespace billow::client {

// Before a job's variables are chosen: what its environment means for them. An error where there is
// none of that name.
Status prepare_environment(Client& client, JobRequest& request);

}  // namespace billow::client
