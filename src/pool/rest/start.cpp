#include "pool/rest/start.h"

#include <fmt/format.h>

#include "base/text.h"

namespace billow::pool::rest {
namespace {

std::string join_words(const Order& order, const billow::Pool& settings) {
  std::string out = fmt::format(
      "join {} --token-file \"$R/etc/billow/token\" --node-name {} "
      "--data \"$R/var/lib/billow\"",
      shell_quote(order.head_url), shell_quote(order.machine.name));
  // The head's address is an admin's word, also that it is not encrypted.
  if (order.head_url.find("http://") != std::string::npos)
    out += " --insecure";
  if (settings.spot || (order.machine.offer && order.machine.offer->spot))
    out += " --reclaim-notices auto";
  if (!settings.sim.empty())
    out += " --sim " + shell_quote(settings.sim);
  for (const auto& [key, value] : settings.labels)
    out += " --label " + shell_quote(key + "=" + value);
  return out;
}

}  // namespace

std::string start_script(const Order& order, const billow::Pool& settings, BootKind kind) {
  // Exit code 78: the head has removed this node.
  std::string out = fmt::format(R"(#!/bin/sh
# Makes this machine a Billow node: {}
umask 077
R="${{BILLOW_BOOT_ROOT:-}}"
mkdir -p "$R/etc/billow" "$R/var/lib/billow"
cat > "$R/etc/billow/token" <<'END'
{}
END
cat > "$R/etc/billow/node.sh" <<'END'
#!/bin/sh
R="${{BILLOW_BOOT_ROOT:-}}"
while :; do
  billow {}
  [ $? -ne 78 ] || exit
  sleep 2
done
END
setsid sh "$R/etc/billow/node.sh" </dev/null >>"$R/var/lib/billow/node.log" 2>&1 &
)",
                                order.machine.name, order.token, join_words(order, settings));
  // A container ends with its first process.
  if (kind == BootKind::container)
    out += "wait\n";
  return out;
}

}  // namespace billow::pool::rest
