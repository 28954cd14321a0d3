// Reads manifests and blobs from an image registry (OCI distribution), with the logins of podman
// and docker. For what is stored beside an image; podman fetches the image itself.
#pragma once

#include <string>

#include "base/json.h"
#include "base/result.h"
#include "core/model/image_name.h"
#include "net/http/http.h"

namespace billow::container {

class Registry {
 public:
  // `logins`: a file such as podman's auth.json; empty: none.
  static Result<Registry> of(const ImageName& image, const std::string& logins);

  struct Manifest {
    std::string digest;  // of the text, computed here
    Json content;
  };
  // By tag or digest. not_found: the registry does not have it.
  Result<Manifest> manifest(const std::string& reference);
  // Its content has this digest.
  Result<std::string> blob(const std::string& digest);

 private:
  Result<std::string> get(const std::string& path, const std::string& accept);
  Result<net::Response> ask(const std::string& url, const net::Headers& headers) const;
  Status sign_in(std::string_view challenge);

  std::string host_, base_, repository_;  // base: "https://ghcr.io/v2/"
  std::string login_, authorization_;     // login: base64 of name and password
};

// What a registry asks for: `Bearer realm="…",service="…",scope="…"`. Empty: it cannot be used.
struct Challenge {
  std::string scheme, realm, service, scope;
  static Challenge parse(std::string_view text);
};

}  // namespace billow::container
