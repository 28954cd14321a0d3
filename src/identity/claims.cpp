#include "identity/claims.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/crypto.h"
#include "base/text.h"

namespace billow::identity {
namespace {

constexpr std::int64_t skew_s = 30;  // of the provider's clock
constexpr std::size_t subject_bytes_max = 255, groups_max = 2000, group_bytes_max = 1024;

bool is_for(const Json& audience, std::string_view client) {
  if (audience.is_string())
    return audience.str_or("") == client;
  return std::ranges::any_of(audience.items(),
                             [&](const Json& each) { return each.str_or("") == client; });
}

// A name that users can have: lower case, with "." and "_" and "-" inside.
std::string usable_name(std::string_view text) {
  std::string out;
  for (char c : text.substr(0, text.find('@'))) {
    if (c >= 'A' && c <= 'Z')
      c = static_cast<char>(c - 'A' + 'a');
    const bool usual =
        (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
    if (!usual)
      return {};
    out += c;
  }
  return out;
}

}  // namespace

Status check_claims(const Json& claims, const Expected& expected) {
  const auto refuse = [](std::string_view why) {
    return fail(Code::unauthorized, fmt::format("the ID token is not accepted: {}", why));
  };
  const std::int64_t now_s = expected.now.ns / 1'000'000'000;
  if (claims["iss"].str_or("") != expected.issuer)
    return refuse("it is of another issuer");
  const Json& audience = claims["aud"];
  if (expected.audience.empty() || !is_for(audience, expected.audience))
    return refuse("it is for another client");
  const Json* party = claims.find("azp");
  if (party && party->str_or("") != expected.audience)
    return refuse("it was given to another client");
  if (audience.is_array() && audience.size() > 1 && !party)
    return refuse("it is for several clients and does not say which one it was given to");
  if (!claims["exp"].is_number() || claims["exp"].int_or(0) + skew_s <= now_s)
    return refuse("it has expired");
  if (!claims["iat"].is_number() || claims["iat"].int_or(INT64_MAX) > now_s + skew_s)
    return refuse("it is from the future");
  if (claims.find("nbf") && claims["nbf"].int_or(INT64_MAX) > now_s + skew_s)
    return refuse("it is not valid yet");
  if (!expected.nonce.empty() && !equal_constant_time(claims["nonce"].str_or(""), expected.nonce))
    return refuse("it belongs to another sign-in");
  return {};
}

Result<Person> person_in(const Json& claims, const Names& names) {
  Person out;
  out.subject = claims["sub"].str_or("");
  if (out.subject.empty() || out.subject.size() > subject_bytes_max ||
      std::ranges::any_of(out.subject, [](unsigned char c) { return c < 0x21 || c == 0x7f; }))
    return fail(Code::unauthorized, "the ID token does not say who it is about");
  out.email = claims["email"].str_or("");
  out.email_verified =
      claims["email_verified"].bool_or(false) || claims["email_verified"].str_or("") == "true";
  out.name = usable_name(claims[names.name_claim].str_or(""));
  if (out.name.empty())
    out.name = usable_name(out.email);
  // A single group may come as a text. What is too much is no reason to guess: nothing of it
  // counts.
  const Json& groups = claims[names.groups_claim];
  if (groups.is_string())
    out.groups.emplace_back(groups.str_or(""));
  if (groups.size() > groups_max)
    return fail(Code::too_large, fmt::format("the ID token names more than {} groups", groups_max),
                "let the provider send only the groups that this client needs");
  for (const Json& each : groups.items())
    if (each.is_string() && each.str_or("").size() <= group_bytes_max)
      out.groups.emplace_back(each.str_or(""));
  std::erase(out.groups, "");
  return out;
}

bool in_domain(const Person& person, const std::vector<std::string>& domains) {
  if (domains.empty())
    return true;
  const auto at = person.email.rfind('@');
  if (!person.email_verified || at == std::string::npos)
    return false;
  const std::string_view domain = std::string_view(person.email).substr(at + 1);
  return std::ranges::any_of(domains, [&](const std::string& each) {
    return std::ranges::equal(domain, each, [](char a, char b) {
      const auto lower = [](char c) {
        return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
      };
      return lower(a) == lower(b);
    });
  });
}

}  // namespace billow::identity
