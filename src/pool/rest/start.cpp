#include "pool/rest/start.h"

#include <fmt/format.h>

#include "base/text.h"
#include "pool/boot.h"

namespace billow::pool::rest {
namespace {

// The short form of boot_script: arguments of containers have a few kilobytes, there is no systemd,
// and a container ends with its first process.
constexpr std::string_view container_script = R"sh(umask 077
R="${{BILLOW_BOOT_ROOT:-}}/opt/billow"
PATH="$R/bin:$PATH"
mkdir -p "$R/bin"
cd "$R"
cat >token <<'END'
{token}
END
cat >ca.pem <<'END'
{authority}
END
trust=
grep -q BEGIN ca.pem && trust="--cacert ca.pem"
(n=0; while sleep 60; do billow join --check --data data >/dev/null 2>&1 && n=0 || n=$((n+1))
[ $n -lt {alone} ] || kill $$; done) &
while :; do
command -v billow >/dev/null || {{
printf 'header = "Authorization: Bearer %s"\n' "$(cut -d. -f1 token)" |
curl -fsS --retry 20 --retry-delay 3 $trust -K - -o p.tar {head}/v1/program &&
echo "{hash}  p.tar" | sha256sum -c - >/dev/null && tar -xf p.tar -C bin; }}
billow join {heads} --token-file token --node-name {name} --data data{options} >>node.log 2>&1
[ $? -ne 78 ] || exit
sleep 2
done
)sh";

std::string join_words(const Order& order, const billow::Pool& settings) {
  std::string out;
  // The head's address is an admin's word, also that it is not encrypted.
  if (order.head_url.find("http://") != std::string::npos)
    out += " --insecure";
  if (settings.spot || (order.machine.offer && order.machine.offer->spot))
    out += " --reclaim-notices auto";
  if (!settings.sim.empty())
    out += " --sim " + shell_quote(settings.sim);
  for (const auto& [key, value] : boot_labels(order, settings))
    out += " --label " + shell_quote(key + "=" + value);
  return out;
}

}  // namespace

std::string start_script(const Order& order, const billow::Pool& settings, BootKind kind) {
  if (kind != BootKind::container)
    return boot_script(order, settings);
  const std::string head = order.head_url.substr(0, order.head_url.find(','));
  return fmt::format(
      fmt::runtime(container_script), fmt::arg("token", order.token),
      fmt::arg("authority", trim(order.authority)), fmt::arg("head", shell_quote(head)),
      fmt::arg("heads", shell_quote(order.head_url)), fmt::arg("hash", order.program_sha256),
      fmt::arg("name", shell_quote(order.machine.name)),
      fmt::arg("options", join_words(order, settings)),
      fmt::arg("alone", boot_alone_max.ns / minutes(1).ns));
}

}  // namespace billow::pool::rest
