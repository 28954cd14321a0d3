#include "view/event_document.h"

#include "core/wire/codec.h"
#include "view/spec_document.h"

namespace billow::view {
namespace {

// Removes or masks what could be used to gain access: hashes of tokens and keys, the values of a
// job's environment, and the path of a webhook (for many services it is the password). The journal
// keeps them; readers see only that they exist.
void cover_secrets(Json& json) {
  if (json.is_array())
    for (Json& item : json.as_array())
      cover_secrets(item);
  if (!json.is_object())
    return;
  auto& members = json.as_object();
  std::erase_if(members,
                [](const Json::Member& m) { return m.first == "hash" || m.first == "sealed"; });
  for (auto& [name, value] : members) {
    if (name == "env" && value.is_object())
      for (auto& [variable, text] : value.as_object())
        text = Json(covered);
    else if (name == "webhook" && value["url"].is_string()) {
      const std::string url = value["url"].as_string();
      const auto host = url.find("://");
      const auto path = url.find('/', host == std::string::npos ? 0 : host + 3);
      value.set("url", path == std::string::npos ? url : url.substr(0, path) + "/…");
    } else
      cover_secrets(value);
  }
}

}  // namespace

Json event_document(const Event& event) {
  std::string body;
  visit([&](const auto& b) { wire::JsonWriter::write(body, b); }, event.body);
  auto parsed = parse_json(body);
  if (parsed)
    cover_secrets(*parsed);
  // The codec leaves out the default state, succeeded, which is what readers ask for first.
  if (const auto* end = get_if<JobEnded>(&event.body); end && parsed)
    parsed->set("state", enum_name(end->state));
  return Json::object({{"seq", event.seq},
                       {"at", format_utc(event.at)},
                       {"kind", wire::variant_kind(event.body)},
                       {"actor", event.actor},
                       {"request_id", event.request_id},
                       {"token_id", event.token.value},
                       {"from", event.from},
                       {"event", parsed ? std::move(*parsed) : Json()}});
}

}  // namespace billow::view
