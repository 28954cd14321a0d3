// Amazon's credential chain, as its own tools follow it: environment, profile files (with roles,
// credential_process and SSO), web identity, container, instance metadata. Found credentials are
// kept until five minutes before they expire. Secrets appear in no message.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "base/sync.h"

namespace billow::pool::ec2 {

struct Credentials {
  std::string access_key, secret_key, session_token;
  WallTime expires;    // zero: never
  std::string source;  // "environment", "profile gpu", "container", "instance metadata"
};

// The sections of ~/.aws/config and ~/.aws/credentials. Sections of the first are named
// "profile NAME" there and NAME here; those of SSO keep their name, "sso-session NAME".
using Profiles = std::map<std::string, std::map<std::string, std::string>>;
Profiles parse_profiles(std::string_view config, std::string_view credentials);

// The JSON that credential_process, the container and the metadata service answer with.
Result<Credentials> parse_credentials(std::string_view json, std::string source);

// Assumes a role with these credentials (sts AssumeRole); a part of the pool, because it is a
// signed request.
struct Role {
  std::string arn, session, external_id, web_identity_token;
  std::int64_t duration_s = 3600;
};
using AssumeRole = std::function<Result<Credentials>(const Credentials&, const Role&)>;
using Variables = std::function<std::string(const char*)>;

class CredentialChain {
 public:
  struct Options {
    std::string profile;  // the pool's; empty: the environment decides
    AssumeRole assume_role;
    Variables variable;  // the environment
  };
  explicit CredentialChain(Options options) : options_(std::move(options)) {}
  // From any thread.
  Result<Credentials> get();
  // The region of the profile or the environment; empty: none.
  std::string region();

 private:
  Result<Credentials> find();
  Result<Profiles> profiles() const;
  Result<Credentials> of_profile(const Profiles& profiles, const std::string& name, int depth);
  Result<Credentials> of_source(const std::string& source, const Profiles& profiles, int depth);
  Result<Credentials> of_sso(const Profiles& profiles, const std::string& name);
  Result<Credentials> of_environment() const;
  Result<Credentials> of_web_identity() const;
  Result<Credentials> of_container() const;
  Result<Credentials> of_metadata() const;
  std::string profile_name() const;

  Options options_;
  Sync<Credentials> kept_;
};

}  // namespace billow::pool::ec2
