#include "simulate/simulate_commands.h"

#include "client/frame/console.h"
#include "client/frame/server_commands.h"

namespace billow::client {

int simulate_exit(const Status& done) {
  if (done)
    return 0;
  return done.error().code == Code::invalid ? report_usage(done.error()) : report(done.error());
}

void add_simulate_commands(CommandTable& table) {
  add_simulate_openb(table);
  add_simulate_jobs(table);
  add_simulate_replay(table);
  add_simulate_endpoints(table);
  add_simulate_prefixes(table);
}

}  // namespace billow::client
