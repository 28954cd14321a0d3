#include "server/joined.h"

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "net/address.h"
#include "net/http/node_credential.h"

namespace billow::client {
namespace {

// The answer of the first of them that answers.
Result<net::Response> ask_heads(const Joined& joined,
                                const net::NodeCredential& credential,
                                const net::TlsClientOptions& tls,
                                const net::ClientRequest& request) {
  Result<net::Response> answer = fail(Code::unavailable, "no head given");
  for (const std::string& one : split(joined.head, ',')) {
    const auto endpoint = net::parse_endpoint(trim(one));
    if (!endpoint)
      continue;
    net::BlockingClient http({.endpoint = *endpoint, .tls = tls});
    answer = http.request({.method = request.method,
                           .target = request.target,
                           .headers = {{"Authorization", BILLOW_TRY(credential.authorization(
                                                             request.method, request.target))},
                                       {"Content-Type", "application/json"}},
                           .body = request.body,
                           .timeout = seconds(10)});
    if (answer)
      break;
  }
  return answer;
}

}  // namespace

net::CertificatePlace certificate_of(const Joined& joined, const std::string& dir) {
  return {.file = dir + "/certificate.pem",
          .trust = {.ca_path = "", .pinned_fingerprint = joined.fingerprint},
          .own_cert = joined.client_cert,
          .own_key = joined.client_key};
}

Result<Joined> read_joined(const std::string& dir) {
  auto text = read_file(dir + "/join.json", 1 << 20);
  if (!text)
    return fail(Code::not_found, "this machine has not joined a head",
                "run `billow join https://HEAD:7070 --token TOKEN`");
  const Json json = BILLOW_TRY(parse_json(*text));
  Joined joined{std::string(json["head"].str_or("")),
                std::string(json["node"].str_or("")),
                std::string(json["fingerprint"].str_or("")),
                {},
                std::string(json["client_cert"].str_or("")),
                std::string(json["client_key"].str_or("")),
                {}};
  for (const auto& [key, value] : json["labels"].members())
    joined.labels[key] = std::string(value.str_or(""));
  for (const Json& hash : json["used_tokens"].items())
    joined.used.emplace_back(hash.str_or(""));
  return joined;
}

Status write_joined(const std::string& dir, const Joined& joined, const std::string& authority) {
  Json labels = Json::object();
  for (const auto& [key, value] : joined.labels)
    labels.set(key, value);
  Json used = Json::array();
  for (const std::string& hash : joined.used)
    used.push(hash);
  if (!authority.empty())
    BILLOW_TRY_VOID(write_file_atomic(dir + "/authority.pem", authority, 0644, true));
  return write_file_atomic(dir + "/join.json",
                           Json::object({{"head", joined.head},
                                         {"node", joined.node},
                                         {"fingerprint", joined.fingerprint},
                                         {"client_cert", joined.client_cert},
                                         {"client_key", joined.client_key},
                                         {"labels", std::move(labels)},
                                         {"used_tokens", std::move(used)}})
                                   .dump() +
                               "\n",
                           0600, true);
}

Result<net::Response> ask_signed(const Joined& joined,
                                 const std::string& dir,
                                 const std::string& key_file,
                                 net::ClientRequest request) {
  const net::NodeCredential credential(key_file);
  const auto tls = BILLOW_TRY(net::stored_tls(certificate_of(joined, dir)));
  auto answer = ask_heads(joined, credential, tls, request);
  if (answer || tls.cert_pem.empty() || !joined.client_cert.empty())
    return answer;
  // A certificate whose credential was revoked ends the handshake without a word: who shows none
  // hears why.
  auto without = tls;
  without.cert_pem.clear();
  without.key_pem.clear();
  return ask_heads(joined, credential, without, request);
}

Known ask_head(const Joined& joined, const std::string& dir) {
  const auto answer = ask_signed(joined, dir, dir + "/credential", {.target = "/v1/agent"});
  if (!answer)
    return Known::unanswered;
  return answer->status == 401 ? Known::no : answer->status == 410 ? Known::given_back : Known::yes;
}

}  // namespace billow::client
