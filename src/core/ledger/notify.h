// Webhook messages: their content and their signature. Pure; the head sends them.
//
// A message's id is derived from the event that caused it. A message sent again after a crash keeps
// its id, so a receiver that remembers ids processes each once. The signature covers id, time and
// body; the time prevents replays.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/json.h"
#include "base/result.h"

namespace billow::ledger {

struct Notice {
  Seq seq = 0;       // of the event in the journal
  std::string kind;  // "budget.warned", "idle.suspended", "job.failed", "node.unhealthy"
  WallTime at;
  std::string project;
  std::string text;  // one sentence for people
  Json data = Json::object();
};

struct WebhookMessage {
  std::string id;
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;
};
// `installation` keeps the ids of different installations distinct. The message has a signature of
// each key.
WebhookMessage sign(const Notice& notice,
                    std::string_view installation,
                    const std::vector<std::string>& keys,
                    WallTime now);

// What the messages of a webhook are signed with: until `old_until` also with the key before, so
// that its receiver can change over.
struct WebhookKeys {
  std::string key;
  std::string old;  // empty: none
  WallTime old_until;
  std::vector<std::string> in_force(WallTime now) const;
};
std::string text_of(const WebhookKeys& keys);
Result<WebhookKeys> webhook_keys_of(std::string_view text);

// The delay before the next try after this many failures: one second, doubling up to an hour; empty
// after 16 failures (about 10 hours).
std::optional<Duration> retry_after(std::uint32_t failures);
// Whether an answer means "do not send this again": any 2xx, and refusals that a retry cannot
// change.
bool delivered_or_refused(int http_status);

}  // namespace billow::ledger
