// The routes of secrets, and what they need of the head beside Host.
#pragma once

#include <string>

#include "api/call.h"

namespace billow::api {

class SecretsHost {
 public:
  virtual ~SecretsHost() = default;
  virtual Result<std::string> seal_secret(ProjectId project,
                                          const std::string& name,
                                          std::string_view value) = 0;
  virtual std::string trouble_with(
      const Secret& secret) const = 0;  // why it cannot be opened here; empty: it can
};

namespace secrets {
void list(CallPtr call);
void set(CallPtr call);
void remove(CallPtr call);
}  // namespace secrets

}  // namespace billow::api
