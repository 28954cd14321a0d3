// The login for the registry of an image. It comes from a secret of the job's project, so that
// private images work on every node. It is on no disk and on no command line: podman reads it from
// memory, through a descriptor that it inherits.
#pragma once

#include <string>

#include "base/file.h"
#include "base/json.h"
#include "base/result.h"
#include "core/model/image_name.h"

namespace billow::container {

struct RegistryLogin {
  std::string secret;  // its name; empty: there is none
  // USER:PASSWORD for the registry of whatever image the job has, or the text of an auth.json of
  // podman or docker, which names its registries.
  std::string value;
};

// The login in an auth.json, without the programs that it may name: base64 of USER:PASSWORD. Empty:
// it has none for this registry.
std::string login_in(const Json& logins, const std::string& registry);

// An auth.json with this login only, for the registry of `image`.
Result<Fd> login_in_memory(const RegistryLogin& login, const ImageName& image);

// For errors: "registry R does not accept the login of secret S: ". Empty without a secret.
std::string refused_login(const RegistryLogin& login, const ImageName& image);
// What to do when a registry wants another login than it got.
std::string login_hint(const RegistryLogin& login);

}  // namespace billow::container
