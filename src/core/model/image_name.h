// Names of container images, parsed before use: a name ends up on another program's command line on
// every node, so anything that could be read as an option, a transport or a path is refused here.
//
//   [REGISTRY[:PORT]/]PATH[:TAG][@sha256:DIGEST]      docker.io/pytorch/pytorch:2.4, ubuntu,
//   localhost/mine, host:5000/a/b@sha256:…
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace billow {

struct ImageName {
  std::string registry;    // "docker.io", "localhost", "host:5000"; empty: none was named
  std::string repository;  // "library/ubuntu", "a/b"
  std::string tag;         // empty: none was named
  std::string digest;      // "sha256:…"; empty: none was named

  std::string text() const;  // as it was written
  // With Docker's registry for a name without one, as is customary.
  std::string qualified() const;
  // The exact image with this digest ("sha256:…"), wherever the tag points now.
  std::string pinned(std::string_view image_digest) const;
  // A registry on this machine, which is contacted without TLS.
  bool on_loopback() const;
};

Result<ImageName> parse_image_name(std::string_view text);
bool is_image_digest(std::string_view text);  // "sha256:" and 64 digits

// Whether a secret's value can be the login of a registry: USER:PASSWORD, or the text of an
// auth.json of podman or docker. No error quotes the value.
Status check_registry_login(const std::string& secret, std::string_view value);

}  // namespace billow
