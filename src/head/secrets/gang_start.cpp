#include "head/secrets/gang_start.h"

#include <fmt/format.h>

#include "base/crypto.h"
#include "base/text.h"

namespace billow::head {
namespace {

// As in core/control (`set_rank_variables`): pairs of ports from 20000 on, one for each job.
constexpr std::int64_t first_port = 20000, pairs = 6000;

}  // namespace

// The core numbers ports by job. Two installations may use one node (jobs of two people on a Slurm
// cluster, say), and their numbers are alike: each installation therefore begins elsewhere. Jobs of
// one installation keep different ports.
void complete_gang_start(std::string_view key, wire::agent_v1::Start& start) {
  if (start.gang)
    start.env["BILLOW_GANG_KEY"] = hmac_sha256_hex(
        key, fmt::format("gang {} {}", start.job.value, start.env["BILLOW_ATTEMPT"]));
  const auto given = start.env.find("MASTER_PORT");
  if (given == start.env.end())
    return;
  const auto port = parse_int(given->second, first_port, first_port + 2 * pairs - 1);
  if (!port)
    return;
  const Sha256 mark = sha256(hmac_sha256_hex(key, "ports of gangs"));
  const std::int64_t begin = mark[0] << 8 | mark[1];
  const std::int64_t pair = ((*port - first_port) / 2 + begin) % pairs;
  given->second = fmt::format("{}", first_port + 2 * pair);
}

}  // namespace billow::head
