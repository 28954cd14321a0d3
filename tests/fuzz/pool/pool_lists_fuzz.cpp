// libFuzzer over what tells the head which machines exist: Slurm's lists, in which other users'
// names stand too, Kubernetes' pods, and the credentials that files and programs give.
// The first byte chooses. A machine that is listed is one of the pool's.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/formats/utc.h"
#include "base/text.h"
#include "pool/ec2/credentials.h"
#include "pool/kubernetes/kubeconfig.h"
#include "pool/kubernetes/pod_state.h"
#include "pool/slurm_pool.h"

namespace {

using namespace billow;
using namespace billow::pool;

void slurm(const std::string& text) {
  static const SlurmPool pool(
      [] {
        billow::Pool settings;
        settings.name = "hpc";
        settings.partition = "gpu";
        return settings;
      }(),
      {.installation = "abc", .work_dir = "/nowhere", .billow = "/nowhere/billow"});
  for (const MachineSighting& seen : pool.read_list(text)) {
    BILLOW_CHECK(seen.name.starts_with("hpc-"), "one of the pool's");
    BILLOW_CHECK(seen.external.find('\n') == std::string::npos, "one line");
    BILLOW_CHECK(seen.ends_at.ns >= 0 && seen.billed_from.ns >= 0, "times");
  }
  const NodeSize size = largest_node(text);
  BILLOW_CHECK(size.cpus > 0 && size.mem_mib >= 0, "a size");
}

void credentials(std::string_view text) {
  const auto cut = std::min(text.find('\0'), text.size());
  (void)ec2::parse_profiles(text.substr(0, cut), text.substr(std::min(cut + 1, text.size())));
  if (const auto read = ec2::parse_credentials(text, "a program"))
    BILLOW_CHECK(!read->access_key.empty() && !read->secret_key.empty(), "both halves");
  if (const auto read = read_plugin_output(std::string(text)))
    BILLOW_CHECK(!read->token.empty() || !read->cert_pem.empty(), "something to show");
  BILLOW_CHECK(utc_or_zero(text).ns >= 0, "a time");
}

void pod(std::string_view text) {
  const auto json = parse_json(text);
  if (!json)
    return;
  const PodSeen seen = read_pod(*json);
  BILLOW_CHECK(valid_utf8(seen.note), "words");
  BILLOW_CHECK(seen.nodes >= 1, "a machine has nodes");
  (void)billow_node_of(seen);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0)
    return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 3) {
    case 0:
      slurm(std::string(bytes));
      break;
    case 1:
      credentials(bytes);
      break;
    default:
      pod(bytes);
  }
  return 0;
}
