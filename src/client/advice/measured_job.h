// Submitting the jobs that profile and compare measure.
#pragma once

#include <string>

#include "base/json.h"
#include "base/result.h"
#include "client/frame/client.h"
#include "client/request/job_request.h"

namespace billow::client {

Result<Json> submit_request(Client& client, JobRequest request);
// One whole GPU where the request names none.
void want_a_gpu(JobRequest& request);
std::string job_number(const Json& submitted);

}  // namespace billow::client
