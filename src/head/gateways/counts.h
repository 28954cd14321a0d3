// What gateways have counted of each endpoint, added up so that no sum ever falls.
//
// A gateway reports its counts since it began; they outlive its process in its data directory, up
// to the last second before it was killed. So the first report over a new connection may be lower
// than what was heard before: the difference is kept, and added to everything it reports from then
// on.
// The counts of a gateway that has gone stay. They are recorded in the journal now and then, and
// when a gateway goes (Gateways::record_counts); the histograms are kept while the head runs.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/model/endpoint.h"
#include "gateway/table.h"

namespace billow::head {

class EndpointCounts {
 public:
  void restore(const Endpoint& endpoint);  // from the journal
  void forget(const std::string& endpoint) { rows_.erase(endpoint); }
  // `anew`: the first report over a connection.
  void heard(const gateway::EndpointFigures& report, const std::string& gateway, bool anew);
  bool any(const std::string& endpoint) const { return rows_.contains(endpoint); }
  // Sets the counters and histograms of the sum.
  void add_up(gateway::EndpointFigures& sum) const;
  // What this gateway has counted since the last call.
  std::vector<EndpointCount> news(const std::string& gateway);

 private:
  struct Row {
    EndpointCount total, missing;  // missing: counted, and not in what it reports now
    Histogram first_byte, missing_first_byte;
    NativeBuckets native, missing_native;
    bool recorded = true;
  };
  std::map<std::string, std::map<std::string, Row>> rows_;  // by endpoint and gateway
};

}  // namespace billow::head
