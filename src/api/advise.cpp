// POST /v1/advise: which GPU a model needs, answered by the advisor inside the head, on a worker
// since it scans the whole catalogue.
#include "advise/ask.h"
#include "advise/fleet.h"
#include "advise/imported_prices.h"
#include "api/call.h"
#include "core/sched/mig.h"

namespace billow::api::advice {

void advise(CallPtr call) {
  auto body = call->body();
  if (!body)
    return call->fail(body.error());
  std::vector<advise::FleetNode> nodes;
  for (const auto& [id, node] : call->host.state().nodes) {
    advise::FleetNode cards;
    for (const NodeGpu& gpu : node.offer.gpus)
      if (gpu.unhealthy.empty()) {
        advise::FleetCard& card = cards.emplace_back(advise::FleetCard{gpu.type, {}});
        for (const sched::MigPlace& place : sched::parse_mig_offer(gpu.mig).places)
          card.mig.push_back(place.profile);
      }
    nodes.push_back(std::move(cards));
  }
  const std::string data_dir(call->host.about()["data_dir"].str_or(""));
  const Status queued = call->host.workers().submit(
      [question = std::move(*body), nodes = std::move(nodes), data_dir,
       now = call->host.now()]() -> Result<Json> {
        auto catalogue = advise::catalogue_with_imports(data_dir);
        if (!catalogue)
          return pass(catalogue.error());
        return advise::answer(
            question,
            {.data_dir = data_dir, .fleet = advise::fleet_of(nodes, *catalogue), .now = now});
      },
      [call](Result<Json> answer) {
        if (!answer)
          return call->fail(answer.error());
        call->reply(200, *answer);
      });
  if (!queued)
    call->fail(queued.error());
}

}  // namespace billow::api::advice
