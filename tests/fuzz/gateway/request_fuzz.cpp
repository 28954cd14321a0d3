// libFuzzer over what the gateway reads of requests besides HTTP itself: host names, keys, names of
// models, token counts, forwarded addresses, traces, headers of the PROXY protocol. The first byte
// chooses the reader.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "gateway/pure/credentials.h"
#include "gateway/pure/forwarded.h"
#include "gateway/pure/host_names.h"
#include "gateway/pure/model_name.h"
#include "gateway/pure/prefix_index.h"
#include "gateway/pure/query_value.h"
#include "gateway/pure/token_usage.h"
#include "gateway/pure/trace_context.h"

namespace {

using namespace billow;
using namespace billow::gateway;

// The gateway chooses the endpoint, the server reads the body: both must mean the same model.
void model(std::string_view body) {
  const auto name = model_name(body);
  const auto json = parse_json(body);
  if (!name || !json || !json->is_object())
    return;
  BILLOW_CHECK((*json)["model"].str_or("") == *name, "as a server reads it");
}

void usage(std::string_view bytes, bool events) {
  const TokenUsage found = usage_of(bytes, events);
  AnswerForm form;
  form.events = events;
  form.text = true;
  form.count(bytes);
  const TokenUsage all = estimated(found, form, bytes.size(), bytes.size());
  BILLOW_CHECK(!found.knows_in || all.in == found.in, "what is reported counts");
}

void headers(std::string_view bytes) {
  net::Headers all;
  static const char* const names[] = {"Authorization", "X-Api-Key",       "Cookie",
                                      "Forwarded",     "X-Forwarded-For", "X-Forwarded-Proto"};
  std::size_t which = 0;
  while (!bytes.empty()) {
    const auto end = std::min(bytes.find('\n'), bytes.size());
    all.add(names[which++ % std::size(names)], std::string(bytes.substr(0, end)));
    bytes.remove_prefix(std::min(end + 1, bytes.size()));
  }
  const OfferedKey key = offered_key(all);
  BILLOW_CHECK(key.key.size() <= endpoint_key_bytes_max || key.hash.empty(),
               "a key that is too long has no hash");
  static const auto trusted = Networks::parse({"127.0.0.0/8", "10.0.0.0/8", "::1"});
  BILLOW_CHECK(trusted.has_value(), "networks");
  (void)client_of(all, *trusted);
  (void)AnswerForm::of(all);
}

void host(std::string_view text) {
  static const HostNames names({"example.com"});
  const std::string plain = host_of(text);
  for (const char c : plain)
    BILLOW_CHECK(!(c >= 'A' && c <= 'Z'), "in lower case");
  const auto found = names.find(text);
  BILLOW_CHECK(found.kind != HostNames::Kind::endpoint || !found.endpoint.empty(),
               "an endpoint has a name");
}

void proxied(std::string_view bytes) {
  if (!begins_proxy_header(bytes))
    return;
  if (const auto header = read_proxy_header(bytes))
    BILLOW_CHECK(header->bytes <= bytes.size() && header->bytes <= proxy_header_bytes_max,
                 "inside what came");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0)
    return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 8) {
    case 0:
      model(bytes);
      break;
    case 1:
    case 2:
      usage(bytes, data[0] % 8 == 2);
      break;
    case 3:
      headers(bytes);
      break;
    case 4:
      host(bytes);
      break;
    case 5:
      proxied(bytes);
      break;
    case 6:
      BILLOW_CHECK(parse_traceparent(traceparent(Tracer(1, 1).begin(bytes))).has_value(),
                   "what is passed on is one");
      break;
    default:
      (void)query_value(200, bytes);
      (void)prefix_of(bytes);
  }
  return 0;
}
