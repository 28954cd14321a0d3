#include "net/http/node_credential.h"

#include <time.h>

#include <fmt/format.h>

#include "base/crypto.h"
#include "base/file.h"
#include "base/text.h"

namespace billow::net {
namespace {

constexpr std::size_t nonce_bytes = 12, nonce_text_max = 64;

std::string signed_text(const NodeSignature& s, Method method, std::string_view target) {
  return fmt::format("billow-node-1\n{}\n{}\n{}\n{}", method_name(method), target, s.time_s,
                     s.nonce);
}

}  // namespace

Result<std::string> sign_node_request(std::string_view private_pem,
                                      Method method,
                                      std::string_view target,
                                      std::int64_t time_s) {
  NodeSignature s;
  s.key = BILLOW_TRY(public_key_of(private_pem));
  s.nonce = random_token(nonce_bytes);
  s.time_s = time_s;
  s.signature = BILLOW_TRY(sign(private_pem, signed_text(s, method, target)));
  return fmt::format("{}{},{},{},{}", node_scheme, s.key, s.time_s, s.nonce, s.signature);
}

Result<NodeSignature> read_node_signature(std::string_view header,
                                          Method method,
                                          std::string_view target) {
  const auto bad = [] {
    return fail(Code::unauthorized, "the node's signature is not valid",
                "check that the agent and the head have the same version");
  };
  if (!starts_with_nocase(header, node_scheme))
    return bad();
  const auto parts = split(trim(header.substr(node_scheme.size())), ',');
  const auto time = parts.size() == 4 ? parse_int(parts[1], 0, INT64_MAX / 1'000'000'000)
                                      : Result<std::int64_t>(bad());
  if (!time || parts[2].empty() || parts[2].size() > nonce_text_max)
    return bad();
  NodeSignature s{parts[0], parts[2], parts[3], *time};
  if (!signature_is_valid(s.key, signed_text(s, method, target), s.signature))
    return bad();
  return s;
}

Result<std::string> NodeCredential::authorization(Method method, std::string_view target) const {
  const std::string text = BILLOW_TRY(read_file(file_, 4096));
  if (text.find("PRIVATE KEY") == std::string::npos)
    return "Bearer " + std::string(trim(text));
  return sign_node_request(text, method, target,
                           system_clock().wall().ns / 1'000'000'000 + ahead_s_.load());
}

void NodeCredential::set_head_time(std::string_view http_date, WallTime now) {
  tm parts{};
  const std::string text(http_date);
  const char* end = ::strptime(text.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &parts);
  if (end && *end == '\0')
    ahead_s_ = ::timegm(&parts) - now.ns / 1'000'000'000;
}

}  // namespace billow::net
