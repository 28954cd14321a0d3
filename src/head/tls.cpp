#include "head/tls.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/file.h"
#include "net/address.h"

namespace billow::head {
namespace {

constexpr Duration certificate_life = hours(24 * 825);

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace

std::vector<std::string> own_addresses() {
  std::vector<std::string> out, loopback = {"127.0.0.1", "::1"};
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) == 0) {
    for (const ifaddrs* at = list; at; at = at->ifa_next) {
      if (!at->ifa_addr || (at->ifa_flags & IFF_LOOPBACK))
        continue;
      char text[INET6_ADDRSTRLEN] = "";
      if (at->ifa_addr->sa_family == AF_INET)
        ::inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in*>(at->ifa_addr)->sin_addr, text,
                    sizeof text);
      // Link-local addresses need a scope and are of no use in a certificate.
      else if (at->ifa_addr->sa_family == AF_INET6 &&
               !IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<sockaddr_in6*>(at->ifa_addr)->sin6_addr))
        ::inet_ntop(AF_INET6, &reinterpret_cast<sockaddr_in6*>(at->ifa_addr)->sin6_addr, text,
                    sizeof text);
      if (text[0])
        out.insert(at->ifa_addr->sa_family == AF_INET ? out.begin() : out.end(), text);
    }
    ::freeifaddrs(list);
  }
  std::stable_partition(out.begin(), out.end(),
                        [](const std::string& a) { return a.find(':') == std::string::npos; });
  out.insert(out.end(), loopback.begin(), loopback.end());
  return out;
}

Result<OwnTls> own_tls(const OwnTlsOptions& options, const net::CertAndKey& authority) {
  net::CertRequest request;
  request.life = certificate_life;
  const auto add = [&](const std::string& name) {
    if (!name.empty() &&
        std::find(request.names.begin(), request.names.end(), name) == request.names.end())
      request.names.push_back(name);
  };
  for (const std::string& name : options.names)
    add(name);
  add(host_name());
  add("localhost");
  for (const std::string& address : own_addresses())
    add(address);
  auto made = net::issue_cert(authority, request);
  if (!made)
    return pass(made.error(), "the head's certificate");
  OwnTls out{options.dir + "/server.pem", options.dir + "/server.key"};
  BILLOW_TRY_VOID(write_file_atomic(out.key_path, made->key_pem, 0600, true));
  BILLOW_TRY_VOID(write_file_atomic(out.cert_path, made->cert_pem, 0644, true));
  return out;
}

bool is_loopback(const std::string& address) {
  const auto parsed = net::parse_address(address);
  if (!parsed)
    return true;  // listening on it reports what is wrong with it
  return parsed->is_loopback();
}

std::string reachable_address(const std::string& bound) {
  auto parsed = net::parse_address(bound);
  if (!parsed || (parsed->host != "0.0.0.0" && parsed->host != "::"))
    return bound;
  parsed->host = own_addresses().front();
  return parsed->text();
}

}  // namespace billow::head
