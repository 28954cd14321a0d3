// Names of container images, taken apart before anybody acts on them: a name ends up on another
// program's command line, on every node, so nothing passes here that could be read as an option, a
// transport or a path.
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
  // With the registry that a name without one means: Docker's, as everybody writes it.
  std::string qualified() const;
  // The very image of this digest ("sha256:…"), whatever the tag points to by now.
  std::string pinned(std::string_view image_digest) const;
  // A registry on this machine itself, which is spoken to without TLS.
  bool on_loopback() const;
};

Result<ImageName> parse_image_name(std::string_view text);
bool is_image_digest(std::string_view text);  // "sha256:" and 64 digits

}  // namespace billow
