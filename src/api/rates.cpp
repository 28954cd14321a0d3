// What a GPU second costs right now, by the types there are: for forms that show a price before
// anything runs. The same rates a lease would begin with: the operator's where they are set, the
// market's elsewhere.
#include <set>

#include "api/call.h"
#include "core/control/money.h"
#include "core/ledger/meter.h"

namespace billow::api::money {

void rates(CallPtr call) {
  static const ledger::PriceBook book = ledger::PriceBook::market();
  const auto& state = call->host.state();
  std::set<std::string> seen;
  Json list = Json::array();
  for (const auto& [id, node] : state.nodes) {
    for (const NodeGpu& gpu : node.offer.gpus) {
      if (!seen.insert(gpu.type).second)
        continue;
      for (const PriceClass price_class :
           {PriceClass::on_demand, PriceClass::spot, PriceClass::reserved})
        list.push(Json::object(
            {{"gpu_type", gpu.type},
             {"class", enum_name(price_class)},
             {"nano_usd_per_s",
              control::charge_rate(state, node, gpu.type, price_class, &book).nano_usd_per_s}}));
    }
  }
  call->reply(200, Json::object({{"rates", std::move(list)}}));
}

}  // namespace billow::api::money
