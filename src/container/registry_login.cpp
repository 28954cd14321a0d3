#include "container/registry_login.h"

#include <fmt/format.h>

#include "base/crypto.h"
#include "base/text.h"
#include "process/sealed_memory_linux.h"

namespace billow::container {
namespace {

std::string registry_of(const ImageName& image) {
  const auto full = parse_image_name(image.qualified());
  return full ? full->registry : image.registry;
}

// The login as an auth.json has it. No error quotes the value.
Result<std::string> encoded(const RegistryLogin& login, const std::string& registry) {
  BILLOW_TRY_VOID(check_registry_login(login.secret, login.value));
  const std::string_view value = trim(login.value);
  if (value.starts_with('{')) {
    std::string found = login_in(BILLOW_TRY(parse_json(value)), registry);
    if (found.empty())
      return fail(Code::forbidden,
                  fmt::format("secret {} has no login for registry {}", login.secret, registry),
                  fmt::format("log in there, then set the secret again: billow secret set {}",
                              login.secret));
    return found;
  }
  return base64(value);
}

}  // namespace

std::string login_in(const Json& logins, const std::string& registry) {
  const Json& auths = logins["auths"];
  for (const std::string& name : {registry, "https://" + registry, "https://" + registry + "/v1/"})
    if (const Json* found = auths.find(name))
      return std::string((*found)["auth"].str_or(""));
  // Docker's registry is stored under the address that it once had.
  if (const Json* hub = auths.find("https://index.docker.io/v1/"); hub && registry == "docker.io")
    return std::string((*hub)["auth"].str_or(""));
  return {};
}

Result<Fd> login_in_memory(const RegistryLogin& login, const ImageName& image) {
  const std::string registry = registry_of(image);
  const std::string auth = BILLOW_TRY(encoded(login, registry));
  const Json file =
      Json::object({{"auths", Json::object({{registry, Json::object({{"auth", auth}})}})}});
  return process::sealed_memory("login", file.dump());
}

std::string refused_login(const RegistryLogin& login, const ImageName& image) {
  if (login.secret.empty())
    return {};
  return fmt::format("registry {} does not accept the login of secret {}: ", registry_of(image),
                     login.secret);
}

std::string login_hint(const RegistryLogin& login) {
  if (!login.secret.empty())
    return fmt::format("set it to USER:PASSWORD: billow secret set {}", login.secret);
  return "store USER:PASSWORD as a secret and name it with --registry-secret, or log in on the "
         "node as the job's user: podman login";
}

}  // namespace billow::container
