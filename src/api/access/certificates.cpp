// Certificates of nodes and gateways, new keys of nodes, and the head's authority (ADR 22).
#include "api/call.h"
#include "base/crypto.h"

namespace billow::api::certificates {
namespace {

// How long a node's old key is accepted: its agent may not have got the answer.
constexpr Duration old_key_grace = hours(1);

struct IssueBody {
  std::string request;  // PKCS #10, PEM
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("request", s.request);
  }
};

struct KeyBody {
  std::string key;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("key", s.key);
  }
};

struct RotateBody {
  bool finish = false, at_once = false;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("finish", s.finish);
    v("at_once", s.at_once);
  }
};

}  // namespace

void issue(CallPtr call) {
  const auto body = read_body<IssueBody>(call);
  if (!body)
    return;
  const auto issued = call->host.issue_certificate(call->principal, body->request);
  if (!issued)
    return call->fail(issued.error());
  call->reply(200, *issued);
}

// The node signs this request with the key that it has. Repeated, because the answer was lost, it
// changes nothing.
void replace_key(CallPtr call) {
  const auto body = read_body<KeyBody>(call);
  if (!body)
    return;
  if (!is_public_key(body->key))
    return call->fail({Code::invalid, "the key is not an Ed25519 public key", ""});
  const Token& token = call->host.state().tokens.at(call->principal.token);
  const std::string hash = control::node_key_hash(body->key);
  if (token.hash == hash)
    return call->reply_durable(200, Json::object({{"ok", true}}));
  call->execute(RotateToken{.token = token.id, .hash = hash, .life = {}, .grace = old_key_grace},
                200, [](const std::vector<Event>&) {
                  return Json::object({{"ok", true}});
                });
}

void authority(CallPtr call) {
  call->reply(200, call->host.authority_document());
}

void rotate(CallPtr call) {
  const auto body = read_body<RotateBody>(call);
  if (!body)
    return;
  using Step = Host::NewAuthority;
  const Step step = !body->finish   ? Step::announce
                    : body->at_once ? Step::change_over_at_once
                                    : Step::change_over;
  const auto rotated = call->host.rotate_authority(step);
  if (!rotated)
    return call->fail(rotated.error());
  call->reply(200, *rotated);
}

}  // namespace billow::api::certificates
