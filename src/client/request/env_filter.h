// Which of the user's variables follow a job. A job should find what its author's shell had, but
// not the author's keys: what looks like a credential stays behind unless it is named with
// --env-var.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/model/job.h"

namespace billow::client {

struct EnvChoice {
  bool none = false;                // --no-env: only what is named
  std::vector<std::string> named;   // --env-var K=V, or K to take the caller's
  std::vector<std::string> always;  // `billow config set pass-env`: taken where they are set
};

// …TOKEN, …SECRET…, …PASSWORD…, …_KEY, AWS_… and the like.
bool looks_like_credential(std::string_view name);
// Variables that describe the shell or the devices here, and would mislead there: SHLVL,
// CUDA_VISIBLE_DEVICES, …
bool belongs_to_this_place(std::string_view name);

// `environment` as in `environ`: "NAME=value" strings. Fails for a --env-var that names nothing.
Result<Environment> job_environment(const std::vector<std::string>& environment,
                                    const EnvChoice& choice);
// The variables that stay behind because they look like credentials and that a program may miss:
// HF_TOKEN, not SSH_AUTH_SOCK or AWS_REGION.
std::vector<std::string> held_back(const std::vector<std::string>& environment,
                                   const Environment& chosen,
                                   const EnvChoice& choice);
std::vector<std::string> own_environment();

}  // namespace billow::client
