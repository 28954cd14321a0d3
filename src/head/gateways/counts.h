// The counts of all gateways for each endpoint, added up so that no sum ever falls.
//
// A gateway reports totals since its first start; it keeps them in its data directory, except for
// the last second before it was killed. So the first report over a new connection may be lower than
// the last one before it: the difference is kept and added to all its later reports.
// The counts of a removed gateway stay. They are recorded in the journal from time to time and when
// a gateway disconnects (Gateways::record_counts); histograms live only as long as the head.
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
