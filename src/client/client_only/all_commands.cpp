// A program that only asks heads: what a laptop needs, and all that builds where there is no server
// (macOS).
#include "client/frame/commands.h"
#include "client/frame/console.h"

namespace billow::client {

CommandTable all_commands() {
  return client_commands();
}
bool can_start_head() {
  return false;
}
std::string rights_page() {
  return {};
}
Status machine_has_gpus() {
  return {};  // only heads ask, and this program starts none
}
int check_provider_files(const Parsed&) {
  return report({Code::unsupported, "this program is a client and knows no provider files",
                 "run billow cloud providers --check where the head is installed"});
}
int move_head_to_aws(const Parsed&) {
  return report({Code::unsupported, "this program is a client and cannot become a head",
                 "run it where the head is installed, or see billow cloud head aws --show"});
}

}  // namespace billow::client
