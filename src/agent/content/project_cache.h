// A directory per project on the node, for what its jobs download again and again and no URL of
// ours names (HF_HOME, pip's cache): the jobs find it in BILLOW_CACHE. Who is told its name can use
// it, and nobody else can find it.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace billow::agent {

Result<std::string> project_cache(const std::string& work_dir,
                                  const std::string& data_dir,
                                  const std::string& project);
// Removes the files of all of them that were read longest ago, down to the limit.
void trim_project_caches(const std::string& work_dir, std::uint64_t bytes_max);

// "a/b": relative, without "." or ".."; an error otherwise.
Result<std::string> plain_path(const std::string& path);

}  // namespace billow::agent
