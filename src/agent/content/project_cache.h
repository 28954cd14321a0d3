// A cache directory per project on the node, for downloads that Billow does not manage (HF_HOME,
// pip's cache). Jobs find it in BILLOW_CACHE. Its name cannot be guessed or listed, so only jobs
// that get the name can use it.
#pragma once

#include <cstdint>
#include <string>

#include "agent/isolate/own_place.h"
#include "base/result.h"

namespace billow::agent {

Result<std::string> project_cache(const OwnPlace& work,
                                  const std::string& data_dir,
                                  const std::string& project);
// A name that only holders of this agent's key can derive from `purpose`.
Result<std::string> unguessable_name(const std::string& data_dir, const std::string& purpose);
// Removes the least recently read files of all projects until they are within the limit.
void trim_project_caches(const std::string& work_dir, std::uint64_t bytes_max);

// "a/b": relative, without "." or ".."; an error otherwise.
Result<std::string> plain_path(const std::string& path);

}  // namespace billow::agent
