// libFuzzer over everything that is read from Google's and Azure's answers: whatever a server
// sends, nothing crashes, and an error always becomes a refusal. Built with clang and
// -DBILLOW_FUZZ=ON only, by `./dev fuzz`.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "pool/azure/azure_answer.h"
#include "pool/gce/gce_answer.h"
#include "pool/oauth/jwt.h"

namespace {
using namespace billow;
using namespace billow::pool;

void read_google(const ApiAnswer& answer) {
  const GceInstancePage page = read_gce_page(answer.body);
  for (const GceInstance& instance : page.instances)
    (void)instance.stopped();
  (void)read_gce_types(answer.body);
  const GceOperation operation = read_gce_operation(answer.body);
  BILLOW_CHECK(operation.refusal.has_value() == !answer.body.at("error", "errors").items().empty(),
               "a failed operation is a refusal");
  BILLOW_CHECK(!gce_refusal(answer).message.empty(), "a refusal says why");
}

void read_azure(const ApiAnswer& answer) {
  (void)read_azure_page(answer.body);
  (void)read_azure_sizes(answer.body, "eastus");
  (void)read_azure_failure(answer.body);
  (void)azure_action_granted(answer.body, "Microsoft.Compute/virtualMachines/read");
  for (const bool spot : {false, true}) {
    const AzureOperation operation = read_azure_operation(answer.body, spot);
    BILLOW_CHECK(!operation.refusal || !operation.refusal->message.empty(), "it says why");
    BILLOW_CHECK(!azure_refusal(answer, spot).message.empty(), "a refusal says why");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)unverified_claims(text);
  net::Response response;
  response.body = text;
  for (const int status : {200, 400, 500}) {
    response.status = status;
    (void)read_token(response, "the server", WallTime{1});
  }
  auto json = parse_json(text);
  if (!json)
    return 0;
  const ApiAnswer answer{.status = 409, .body = std::move(*json), .text = {}, .headers = {}};
  read_google(answer);
  read_azure(answer);
  return 0;
}
