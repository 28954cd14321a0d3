// Endpoints where other commands meet them: `describe`, `explain` and `logs` take an endpoint's
// name as well as a job's number.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "client/frame/client.h"
#include "client/frame/command.h"
#include "core/model/endpoint.h"

namespace billow::client {

// Whether there is an endpoint of this name. Numbers are jobs; no request is made for them.
bool is_endpoint(Client& client, const std::string& name);
// A name that no endpoint has may still be the one of a job: not when that job was a replica of an
// endpoint that is gone.
Status not_of_deleted_endpoint(Client& client, const std::string& word, const std::string& job);
int describe_endpoint(const Parsed& parsed, const std::string& name);
int explain_endpoint(const Parsed& parsed, const std::string& name);
// The job whose log an endpoint's name stands for: its newest replica, or the one that failed last.
Result<std::string> replica_to_read(Client& client, const std::string& name);

// An endpoint's document as lines of facts.
std::string endpoint_text(const Json& endpoint);
// What one of its gateways does, as a line of facts.
std::string gateway_share_text(const Json& gateway);
// The first address of an endpoint's document; empty where no gateway serves it yet.
std::string url_of(const Json& endpoint);
// "10%" or "0.5%" in thousandths. The error names `what`.
Result<std::uint32_t> read_part(std::string_view what, std::string_view text);
Result<EndpointPrices> read_prices(const std::vector<std::string>& texts);
// "100/min", "50000tokens/day", "usd=5/day" as the API takes them.
Result<Json> read_limits(const std::vector<std::string>& texts);
// As --price takes them: "0.01/request".
std::vector<std::string> price_texts(const EndpointPrices& prices);
// A canary's plan, as its document has it: "10 % of the requests".
std::string release_text(const Json& release);
struct Await {
  bool json = false, quiet = false;
  bool promoted = false;  // it is a canary already, and is to take over
  Json changes = {};      // what the revision changes, for the endpoint's document
};
// Waits until the revision serves or has failed; returns the exit code. What it waits for is shown:
// on a terminal in a line that changes, elsewhere once for each reason that lasts.
int await_revision(Client& client,
                   const std::string& name,
                   std::uint64_t revision,
                   const Await& how);

}  // namespace billow::client
