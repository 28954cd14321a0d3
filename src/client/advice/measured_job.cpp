#include "client/advice/measured_job.h"

#include <fmt/format.h>

#include "base/crypto.h"
#include "client/request/environments.h"
#include "client/request/sync.h"

namespace billow::client {

Result<Json> submit_request(Client& client, JobRequest request) {
  BILLOW_TRY_VOID(complete(request));
  BILLOW_TRY_VOID(prepare_environment(client, request));
  Environment env = BILLOW_TRY(job_environment(own_environment(), request.env));
  BILLOW_TRY_VOID(sync_for_job(client, request, false, env));
  return client.post("/v1/jobs", submit_body(request, env),
                     {{"Idempotency-Key", "cli-" + random_token(12)}});
}

void want_a_gpu(JobRequest& request) {
  if (request.spec.resources.gpus > 0)
    return;
  request.spec.resources.gpus = 1;
  request.spec.resources.share.milli = whole_gpu_milli;
}

std::string job_number(const Json& submitted) {
  return fmt::format("{}", submitted["id"].uint_or(0));
}

}  // namespace billow::client
