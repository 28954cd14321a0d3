#include "gateway/pure/host_names.h"

#include <algorithm>

#include "base/text.h"

namespace billow::gateway {
namespace {

// An IPv4 or IPv6 address: the parser has refused hosts with other characters.
bool is_address(std::string_view host) {
  if (host.find(':') != host.npos)
    return true;
  const std::string_view last = host.substr(host.rfind('.') + 1);
  return !last.empty() &&
         std::all_of(last.begin(), last.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::string host_of(std::string_view authority) {
  if (authority.starts_with('['))
    return lower(authority.substr(1, authority.find(']') - 1));
  std::string host = lower(authority.substr(0, authority.rfind(':')));
  if (host.ends_with('.'))
    host.pop_back();
  return host;
}

HostNames::HostNames(std::vector<std::string> own) : own_(std::move(own)) {
  for (std::string& each : own_)
    each = host_of(each);
  // The longest first: with example.org and apps.example.org, chat.apps.example.org is chat.
  std::ranges::stable_sort(
      own_, [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
}

void HostNames::take(const std::vector<Domain>& domains) {
  domains_.clear();
  for (const Domain& each : domains)
    domains_[each.name] = each.endpoint;
}

HostNames::Found HostNames::find(std::string_view authority) const {
  const std::string host = host_of(authority);
  if (host.empty() || host == "localhost" || is_address(host))
    return {};
  // Own domains first: nobody can claim a name below them for another endpoint. An endpoint is one
  // label, so that a name with dots is never taken for one below another domain.
  for (const std::string& own : own_) {
    if (host == own)
      return {Kind::gateway, "", true};
    if (host.size() > own.size() + 1 && host.ends_with(own) &&
        host[host.size() - own.size() - 1] == '.') {
      const std::string name = host.substr(0, host.size() - own.size() - 1);
      if (name.find('.') != name.npos)
        return {Kind::unknown};
      return {Kind::endpoint, name, true};
    }
  }
  if (const auto found = domains_.find(host); found != domains_.end())
    return {Kind::endpoint, found->second};
  return {own_.empty() ? Kind::gateway : Kind::unknown};
}

std::vector<std::string> HostNames::domains() const {
  std::vector<std::string> out;
  for (const auto& [name, endpoint] : domains_)
    if (!endpoint.empty() && std::none_of(own_.begin(), own_.end(), [&](const std::string& own) {
          return name == own || name.ends_with("." + own);
        }))
      out.push_back(name);
  return out;
}

}  // namespace billow::gateway
