#include "core/ledger/notify.h"

#include <fmt/format.h>

#include "base/crypto.h"
#include "base/text.h"

namespace billow::ledger {

namespace {

std::string signature(std::string_view secret,
                      std::string_view id,
                      std::string_view timestamp,
                      std::string_view body) {
  return "v1=" + hmac_sha256_hex(secret, fmt::format("{}.{}.{}", id, timestamp, body));
}

}  // namespace

WebhookMessage sign(const Notice& notice,
                    std::string_view installation,
                    std::string_view secret,
                    WallTime now) {
  WebhookMessage out;
  out.id =
      "msg_" +
      sha256_hex(fmt::format("{}\n{}\n{}", installation, notice.seq, notice.kind)).substr(0, 32);
  Json body = Json::object({{"id", out.id},
                            {"kind", notice.kind},
                            {"at", format_utc(notice.at)},
                            {"project", notice.project},
                            {"text", notice.text},
                            {"data", notice.data}});
  out.body = body.dump();
  const std::string timestamp = std::to_string(now.ns / 1'000'000'000);
  out.headers = {{"Content-Type", "application/json"},
                 {"Billow-Id", out.id},
                 {"Billow-Timestamp", timestamp},
                 {"Billow-Signature", signature(secret, out.id, timestamp, out.body)}};
  return out;
}

std::optional<Duration> retry_after(std::uint32_t failures) {
  if (failures == 0)
    return Duration{};
  if (failures > 16)
    return std::nullopt;
  return std::min(hours(1), seconds(std::int64_t{1} << (failures - 1)));
}

bool delivered_or_refused(int status) {
  if (status >= 200 && status < 300)
    return true;
  return status == 400 || status == 401 || status == 403 || status == 404 || status == 405 ||
         status == 410 || status == 413 || status == 422;
}

}  // namespace billow::ledger
