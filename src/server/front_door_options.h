// Options of the front door that `billow up` and `billow gateway` share.
#pragma once

#include "client/frame/command.h"
#include "gateway/gateway.h"

namespace billow::client {

inline constexpr OptionSpec front_door_options[] = {
    {"domain", 0, "DOMAIN",
     "serve endpoint NAME at NAME.DOMAIN, and refuse other host names (repeatable)", true},
    {"certs", 0, "DIR",
     "directory with certificates for host names: NAME.pem and NAME.key; read again when they "
     "change",
     false, Completes::directory},
    {"trusted-proxy", 0, "CIDR",
     "believe X-Forwarded-For, Forwarded and the PROXY protocol of these addresses (repeatable)",
     true},
    {"insecure-http", 0, nullptr,
     "also serve other machines without TLS: anyone on the network path can read the keys"},
    {"acme", 0, "URL",
     "get certificates for host names of endpoints from this ACME directory, e.g. "
     "https://acme-v02.api.letsencrypt.org/directory; its terms of service count as accepted"},
    {"acme-contact", 0, "EMAIL", "mail address for the ACME authority"},
    {"acme-dns-hook", 0, "PROGRAM",
     "prove host names by DNS: run as PROGRAM add|remove NAME VALUE to set a TXT record (default: "
     "by HTTP on port 80)",
     false, Completes::file},
    {"acme-ca", 0, "FILE", "certificate authority of the ACME server itself (PEM)", false,
     Completes::file},
};

// Threads of a gateway, by the option of this name; 1 without it.
Result<std::size_t> read_threads(const Parsed& parsed, const char* option);
// Of `billow gateway`.
Status read_front_door(const Parsed& parsed, gateway::GatewayOptions& options);
// Of `billow up`: as the gateway that it starts gets them, which runs in another directory.
Result<std::vector<std::string>> front_door_arguments(const Parsed& parsed);

}  // namespace billow::client
