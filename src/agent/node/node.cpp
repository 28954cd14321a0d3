#include "agent/node/node.h"

#include <signal.h>

#include "agent/node/node_agent.h"
#include "net/wipe.h"

namespace billow::agent {

Status run_node(NodeOptions options) {
  ::signal(SIGPIPE, SIG_IGN);
  net::wipe_freed_memory();  // start orders hold secrets
  NodeAgent agent(std::move(options));
  BILLOW_TRY_VOID(agent.start());
  agent.run();
  if (agent.removed())
    return fail(Code::unauthorized, "the head has removed this node",
                "to join again, run: billow join URL --token TOKEN, with a new token from `billow "
                "token create --node`");
  return {};
}

}  // namespace billow::agent
