// Signatures that cosign stores beside an image: a manifest under the tag "sha256-<digest>.sig",
// whose layers are signed statements about the image's digest.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "core/model/image_name.h"

namespace billow::container {

// An error if it holds no public key in PEM. Everywhere here `pem` may hold several keys, one after
// the other: a signature of one of them suffices.
Status check_public_key(std::string_view pem);

// Whether one of the keys has signed the statement, and the statement is about the image with this
// digest.
bool is_signed(std::string_view pem,
               std::string_view statement,
               std::string_view signature,  // base64
               std::string_view digest);

// The digest of an image that has a signature of one of these keys. Later uses of the name may be
// another image, so use the digest.
Result<std::string> signed_digest(const ImageName& image,
                                  const std::string& pem,
                                  const std::string& logins);

}  // namespace billow::container
