#include "server/local_accounts.h"

#include <cstdlib>

#include "agent/isolate/users.h"
#include "agent/node/node_policy.h"

namespace billow::server {

Result<std::string> account_with_access(unsigned uid) {
  const agent::UserRecord account = BILLOW_TRY(agent::look_up_uid(uid));
  if (uid == 0)
    return account.name;
  const char* path = std::getenv(agent::node_policy_variable);
  const agent::NodePolicy policy = BILLOW_TRY(agent::load_node_policy(path ? path : ""));
  BILLOW_TRY_VOID(agent::check_policy(policy, account.name, account));
  return account.name;
}

}  // namespace billow::server
