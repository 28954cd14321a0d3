// What an ID token must say to be believed (OpenID Connect Core 3.1.3.7), and what it says about
// somebody.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "base/result.h"

namespace billow::identity {

struct Expected {
  std::string issuer;
  std::string audience;  // our client id
  std::string nonce;     // of the sign-in that asked for the token; empty: none was asked for
  WallTime now;
};
// Of a token whose signature was checked.
Status check_claims(const Json& claims, const Expected& expected);

struct Names {
  std::string groups_claim, name_claim;
};
struct Person {
  std::string subject;
  std::string name;  // for a new user: made of the name claim, or of the e-mail address
  std::string email;
  bool email_verified = false;
  std::vector<std::string> groups;
};
// unauthorized: the subject or the name is missing or unusable.
Result<Person> person_in(const Json& claims, const Names& names);
// Whether the address is verified and in one of the domains.
bool in_domain(const Person& person, const std::vector<std::string>& domains);

}  // namespace billow::identity
