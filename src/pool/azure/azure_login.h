// Azure's credentials, in Azure's own order: the pool's own key or file, the environment (client
// secret, certificate or federated token), a managed identity, the login of the Azure CLI.
#pragma once

#include "base/clock.h"
#include "pool/oauth/login.h"
#include "pool/oauth/web.h"

namespace billow::pool {

struct AzureLoginOptions {
  std::string credentials;  // path of a JSON file as `az ad sp create-for-rbac` prints it
  std::string key;          // secret: the text of such a file, given with the pool
  std::string authority;    // "https://login.microsoftonline.com"
  std::string endpoint;     // the API that the token is for
};
Result<Login> azure_login(const AzureLoginOptions& options, Web& web, const Clock& clock);

}  // namespace billow::pool
