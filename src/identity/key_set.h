// A provider's public keys (JWKS, RFC 7517) and the check of a token's signature.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "identity/jwt.h"

struct evp_pkey_st;

namespace billow::identity {

class KeySet {
 public:
  // Keys of other kinds are left out: providers publish them for other programs.
  static Result<KeySet> parse(std::string_view text);

  // not_found: no key has the token's `kid`, which may be newer than this set. unauthorized: the
  // signature is wrong, or made in a way that is not accepted.
  Status check(const Jwt& token) const;
  std::size_t size() const { return keys_.size(); }

 private:
  enum class Kind { rsa, p256 };
  struct Key {
    std::string id;
    Kind kind = Kind::rsa;
    std::shared_ptr<evp_pkey_st> key;
  };
  static Result<Key> parse_key(const Json& json);
  std::vector<Key> keys_;
};

}  // namespace billow::identity
