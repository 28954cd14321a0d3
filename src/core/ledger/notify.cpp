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
                    const std::vector<std::string>& keys,
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
  std::vector<std::string> signatures;
  for (const std::string& key : keys)
    signatures.push_back(signature(key, out.id, timestamp, out.body));
  out.headers = {{"Content-Type", "application/json"},
                 {"Billow-Id", out.id},
                 {"Billow-Timestamp", timestamp},
                 {"Billow-Signature", join(signatures, ",")}};
  return out;
}

std::vector<std::string> WebhookKeys::in_force(WallTime now) const {
  if (old.empty() || now >= old_until)
    return {key};
  return {key, old};
}

std::string text_of(const WebhookKeys& keys) {
  return Json::object({{"key", keys.key}, {"old", keys.old}, {"old_until_ns", keys.old_until.ns}})
      .dump();
}

Result<WebhookKeys> webhook_keys_of(std::string_view text) {
  const Json json = BILLOW_TRY(parse_json(text));
  WebhookKeys keys{.key = std::string(json["key"].str_or("")),
                   .old = std::string(json["old"].str_or("")),
                   .old_until = WallTime{json["old_until_ns"].int_or(0)}};
  if (keys.key.empty())
    return fail(Code::internal, "the record of a webhook's signing key has no key");
  return keys;
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
