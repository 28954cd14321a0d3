// Messages to the outside: what a webhook is sent and how it proves where it comes from. Pure; the
// head does the sending.
//
// A message's id is made from the event that caused it, so a message sent again after a crash has
// the id of the first and a receiver that keeps ids sees each once. The signature covers id, time
// and body; the time stops replays.
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
// `installation` keeps the ids of two installations apart.
WebhookMessage sign(const Notice& notice,
                    std::string_view installation,
                    std::string_view secret,
                    WallTime now);

// When to try again after this many failures: a second, doubling, to an hour; nothing after 16
// (about 10 hours).
std::optional<Duration> retry_after(std::uint32_t failures);
// Whether an answer means "do not send this again": any 2xx, and the refusals that asking again
// cannot change.
bool delivered_or_refused(int http_status);

}  // namespace billow::ledger
