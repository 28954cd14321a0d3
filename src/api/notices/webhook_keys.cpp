// The first key of a webhook is made from the key of the installation; one that replaces it is
// random, and is stored sealed among the head's own secrets.
#include "api/notices/webhook_keys.h"

#include <fmt/format.h>

#include "base/crypto.h"
#include "base/text.h"
#include "core/control/decide/installation_secrets.h"
#include "core/ledger/notify.h"

namespace billow::api::money {
namespace {

constexpr std::size_t key_bytes = 24;
constexpr Duration grace_max = hours(24 * 30);

struct RotateBody {
  std::int64_t grace_s = 24 * 3600;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("grace_s", s.grace_s);
  }
};

}  // namespace

void rotate_webhook(CallPtr call) {
  const auto id = parse_int(call->parts[0], 1, INT64_MAX);
  const auto webhook = static_cast<std::uint64_t>(id.value_or(0));
  if (!call->host.state().money.webhooks.contains(webhook))
    return call->fail({Code::not_found, fmt::format("there is no webhook {}", call->parts[0]),
                       "see `billow webhook list`"});
  const auto body = read_body<RotateBody>(call);
  if (!body)
    return;
  if (body->grace_s < 0 || body->grace_s > grace_max.ns / 1'000'000'000)
    return call->fail({Code::invalid, "the grace period must be between 0 and 30 days",
                       "0 stops signing with the old key at once"});
  ledger::WebhookKeys keys{.key = "whsec_" + hex(random_bytes(key_bytes)),
                           .old = {},
                           .old_until = call->host.now() + seconds(body->grace_s)};
  if (body->grace_s > 0)
    keys.old = call->host.webhook_secret(webhook);
  const std::string record = control::webhook_keys_record(webhook);
  std::string text = ledger::text_of(keys);
  auto sealed = call->host.seal_secret(ProjectId{}, record, text);
  wipe(text);
  wipe(keys.old);
  if (!sealed)
    return call->fail(sealed.error());
  call->execute(
      SetSecret{control::installation_secrets, call->principal.user, record, std::move(*sealed)},
      200, [webhook, keys](const std::vector<Event>&) {
        return Json::object(
            {{"id", webhook}, {"secret", keys.key}, {"old_until", format_utc(keys.old_until)}});
      });
}

}  // namespace billow::api::money
