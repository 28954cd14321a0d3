// Which endpoint a host name leads to: NAME.DOMAIN of the gateway's own domains, or a domain that
// was added to an endpoint. With own domains, other names are refused: a name that somebody else
// lets point here (DNS rebinding, a forgotten record) is not served.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/front_door.h"

namespace billow::gateway {

// A Host or :authority without its port and a final dot, in lower case; of an IPv6 address, without
// brackets.
std::string host_of(std::string_view authority);

class HostNames {
 public:
  explicit HostNames(std::vector<std::string> own = {});  // "example.com", in any case
  void take(const std::vector<Domain>& domains);

  enum class Kind {
    gateway,   // this gateway itself: paths choose the endpoint
    endpoint,  // `endpoint` is its name, in lower case if the host name has it; empty: deleted
    unknown,   // not served here
  };
  struct Found {
    Kind kind = Kind::gateway;
    std::string endpoint = {};
    // The name is an own domain or below one (then the case of the endpoint's name is lost).
    bool by_own_domain = false;
  };
  Found find(std::string_view authority) const;
  // The names that certificates are wanted for: added domains that lead to an endpoint. Not those
  // below own domains, which a wildcard certificate covers.
  std::vector<std::string> domains() const;
  const std::vector<std::string>& own() const { return own_; }

 private:
  std::vector<std::string> own_;
  std::map<std::string, std::string, std::less<>> domains_;  // their endpoints; empty: deleted
};

}  // namespace billow::gateway
