// What is kept so that a job can be run again as it ran.
#pragma once

#include <string>

#include "api/host.h"

namespace billow::api {

// The image a job ran in, as its node found it: "sha256:…"; empty where it is not known.
std::string image_digest_of(const Host& host, JobId job, const Json& document);

}  // namespace billow::api
