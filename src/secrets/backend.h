// A secret backend: a server that has the values of secrets.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/enums.h"
#include "base/result.h"

namespace billow {

enum class BackendKind { vault, aws, google };
BILLOW_ENUM_NAMES(BackendKind,
                  {BackendKind::vault, "vault"},
                  {BackendKind::aws, "aws"},
                  {BackendKind::google, "google"});

}  // namespace billow

namespace billow::secrets {

// Stored sealed, because of `credential`.
struct BackendSettings {
  std::string name;
  BackendKind kind = BackendKind::vault;
  std::string address;  // "https://vault.example.com:8200"; of clouds: empty is the usual one
  std::string mount = "secret";  // of vault: where its KV engine is
  std::string space;             // of vault: its namespace
  std::string region;            // of aws
  std::string project;           // of google
  // Secret. Of vault: a token. Of aws: the text of a credentials file with a section [default]. Of
  // google: the text of a service account's key. Clouds without one use the head's own login.
  std::string credential;
  // Which paths a project's admins may refer to: PROJECT → prefix. Others need backends.change.
  std::map<std::string, std::string> allow;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("name", s.name);
    v("kind", s.kind);
    v("address", s.address);
    v("mount", s.mount);
    v("space", s.space);
    v("region", s.region);
    v("project", s.project);
    v("credential", s.credential);
    v("allow", s.allow);
  }
};
Status check_settings(const BackendSettings& settings);
// Whether admins of the project may refer to the path.
bool opens(const BackendSettings& settings, const std::string& project, std::string_view path);

// The name under which the settings are among the installation's own secrets.
std::string record_of(const std::string& backend);

// "team:apps/train#token": the value of `token` at `apps/train` in the backend `team`. Without a
// key: the whole value; of vault, the only one at that path.
struct Reference {
  std::string backend, path, key;
};
Result<Reference> parse_reference(std::string_view text);
// Whether the path is at the prefix or below it: whole parts count.
bool is_below(std::string_view path, std::string_view prefix);

class Backend {
 public:
  virtual ~Backend() = default;
  // not_found, forbidden or invalid: asking again is no use; unavailable: it may be.
  virtual Result<std::string> fetch(const Reference& reference) = 0;
  // Whether the server answers and knows the credential; returns the identity it sees.
  virtual Result<std::string> check() = 0;
  // Makes the credential last longer, if it expires and can be renewed. Answers when to do so
  // again; 0: never.
  virtual Result<Duration> renew() { return Duration{}; }
};
Result<std::unique_ptr<Backend>> make_backend(const BackendSettings& settings, const Clock& clock);

// Asks again a few times while the server is unavailable.
Result<std::string> fetch_patiently(Backend& backend, const Reference& reference);

// What a server says, as one short line without control characters.
std::string shown(std::string_view text);
// The member of a value that is a JSON object, or all of it without a key.
Result<std::string> member_of(std::string value, const Reference& reference);

std::unique_ptr<Backend> make_vault(const BackendSettings& settings);
std::unique_ptr<Backend> make_aws(const BackendSettings& settings);
std::unique_ptr<Backend> make_google(const BackendSettings& settings, const Clock& clock);

}  // namespace billow::secrets
