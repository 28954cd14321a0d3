// What is kept so that a job can be run again as it ran.
#pragma once

#include <string>

#include "api/host.h"

namespace billow::api {

struct VariablesFile {
  Environment env;
  template <class V>
  void fields(V& v) { v("env", env); }
};

// The variables with this digest, which are in the state now.
void keep_variables(Host& host, const std::string& digest);
// The image a job ran in, as its node found it: "sha256:…"; empty where it is not known.
Status keep_image_digest(const Host& host, JobId job, const std::string& digest);
std::string image_digest_of(const Host& host, JobId job);

}  // namespace billow::api
