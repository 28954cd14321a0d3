// Google's credentials, in Google's own order: the pool's own key or file,
// GOOGLE_APPLICATION_CREDENTIALS, the login of gcloud, the metadata server of a machine in Google's
// cloud.
#pragma once

#include "base/clock.h"
#include "pool/oauth/login.h"
#include "pool/oauth/web.h"

namespace billow::pool {

struct GceLoginOptions {
  std::string credentials;  // path of a service account's key or of gcloud's login
  std::string key;          // secret: the text of such a file, given with the pool
};
Result<Login> gce_login(const GceLoginOptions& options, Web& web, const Clock& clock);

// Who holds this token, by Google's own word. Logins of gcloud do not say it themselves.
Result<std::string> gce_identity(const Login& login, Web& web);

}  // namespace billow::pool
