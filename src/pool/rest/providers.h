// The provider files that come inside the binary, and those beside it: a file in the folder
// `providers` of the data directory replaces or adds a provider, and a path names one file.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "pool/rest/provider.h"

namespace billow::pool::rest {

// `name` is a provider's name, or a path (it has a slash). `folder` may be empty.
Result<Provider> find_provider(const std::string& name, const std::string& folder);
// Checks one file: `billow cloud providers --check FILE`.
Result<Provider> check_provider_file(const std::string& path);

// One of the files inside this binary, as an administrator sees it.
struct ProviderFile {
  std::string name, title, credentials, boot;
  Duration bill_step, bill_minimum;
  std::string error;  // what is wrong with it; empty: nothing
};
std::vector<ProviderFile> provider_files();

}  // namespace billow::pool::rest
