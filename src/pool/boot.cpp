#include "pool/boot.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace billow::pool {
namespace {

// Everything after the name of the node.
std::string join_options(const Order& order, const billow::Pool& settings) {
  std::string out;
  // The head's address is an admin's word, also that it is not encrypted.
  if (order.head_url.find("http://") != std::string::npos)
    out += " --insecure";
  if (order.machine.offer ? order.machine.offer->spot : settings.spot)
    out += " --reclaim-notices auto";
  if (!settings.sim.empty())
    out += " --sim " + shell_quote(settings.sim);
  for (const auto& [key, value] : boot_labels(order, settings))
    out += " --label " + shell_quote(key + "=" + value);
  return out;
}

// curl and container images know the usual variables, the agent its own.
std::string proxy_lines(const billow::Pool& settings) {
  const auto found = settings.options.find("proxy");
  if (found == settings.options.end() || found->second.empty())
    return {};
  const std::string url = shell_quote(found->second);
  return fmt::format(
      "\nexport BILLOW_PROXY={0} http_proxy={0} https_proxy={0}"
      "\nexport no_proxy=localhost,127.0.0.1,169.254.169.254",
      url);
}

// The first of several heads' addresses: the program is the same on all of them.
std::string first_head(const std::string& url) {
  return url.substr(0, url.find(','));
}

// ROOT and PLAIN let tests run the script beside other machines: below a directory, without
// systemd.
constexpr std::string_view script = R"sh(#!/bin/sh
# Makes this machine a Billow node: {name}
umask 077
R="${{BILLOW_BOOT_ROOT:-}}"
mkdir -p "$R/etc/billow" "$R/var/lib/billow" "$R/opt/billow"
{rank}
echo {disk_kib} > "$R/opt/billow/disk-kib"
cat > "$R/etc/billow/token" <<'END'
{token}
END
cat > "$R/etc/billow/authority.pem" <<'END'
{authority}
END
cat > "$R/opt/billow/end.sh" <<'END'
${{BILLOW_BOOT_END:-{end}}}
END
cat > "$R/opt/billow/disks.sh" <<'END'
# The machine's own NVMe disks hold the node's data and the jobs' directories: several are striped.
# They come empty and end with the machine. Without any, or if the job needs more, all stay on the
# boot disk.
R="${{BILLOW_BOOT_ROOT:-}}"
need=$(cat "$R/opt/billow/disk-kib" 2>/dev/null || echo 0)
data="$R/var/lib/billow"
work="$R/var/lib/billow-work"
share() {{
  mkdir -p "$work" "$data/work" && chmod 755 "$work" "$data/work" &&
    mount --bind "$data/work" "$work"
}}
exec 9> "$R/opt/billow/disks.lock"
flock 9
mountpoint -q "$data" && exit
if mountpoint -q /opt/dlami/nvme; then # AWS's image has striped them already
  [ "$(df -Pk /opt/dlami/nvme | awk 'NR==2 {{print $4}}')" -ge "$need" ] || exit 0
  mkdir -p /opt/dlami/nvme/billow
  mount --bind /opt/dlami/nvme/billow "$data" && share
  exit
fi
if ! blkid -L billow-local >/dev/null; then
  set --
  for disk in $(lsblk -dpno NAME,MODEL |
    sed -nE 's/^([^ ]+) .*(Instance Storage|NVMe Direct Disk.*|nvme_card) *$/\1/p'); do
    [ -n "$(lsblk -no MOUNTPOINT,FSTYPE "$disk" | tr -d ' \n')" ] || set -- "$@" "$disk"
  done
  [ $# -gt 0 ] || exit 0
  if [ "$need" -gt 0 ]; then
    has=$(lsblk -bdno SIZE "$@" | awk '{{sum += $1}} END {{printf "%d", sum / 1024 * 0.95}}')
    [ "$has" -ge "$need" ] || exit 0
  fi
  one=$1
  if [ $# -gt 1 ] && command -v mdadm >/dev/null; then
    one=/dev/md/billow
    mdadm --create "$one" --level=0 --raid-devices=$# --force --run "$@" || exit 1
  fi
  mkfs.ext4 -q -F -m 0 -E nodiscard -L billow-local "$one" || exit 1
fi
mount -o noatime "$(blkid -L billow-local)" "$data" && share
END
cat > "$R/opt/billow/node.sh" <<'END'
# Fetches the program if it is not here, and joins. Exit code 78: the head has removed this node.
R="${{BILLOW_BOOT_ROOT:-}}"
PATH="$R/opt/billow/bin:$PATH:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
export PATH{proxy}
if ! command -v billow >/dev/null 2>&1; then
  ca="$R/etc/billow/authority.pem"
  trust=
  grep -q BEGIN "$ca" && trust="--cacert $ca"
  token=$(cut -d. -f1 "$R/etc/billow/token")
  printf 'header = "Authorization: Bearer %s"\n' "$token" |
    curl -fsS --retry 20 --retry-delay 3 --retry-all-errors $trust -K - \
      -o "$R/opt/billow/program.tar" {head}/v1/program || exit 1
  echo "{hash}  $R/opt/billow/program.tar" | sha256sum -c - >/dev/null || exit 1
  mkdir -p "$R/opt/billow/bin"
  tar -xf "$R/opt/billow/program.tar" -C "$R/opt/billow/bin" || exit 1
  rm -f "$R/opt/billow/program.tar"
fi
name=$(cat "$R/opt/billow/name")
set --
if mountpoint -q "$R/var/lib/billow-work"; then
  set -- "$@" --work-dir "$R/var/lib/billow-work"
fi
if [ -e "$R/opt/billow/cache.sh" ] && sh "$R/opt/billow/cache.sh"; then
  set -- "$@" --cache-dir "$R/var/cache/billow"
fi
# Which of two machines this is, if its order was carried out twice.
id=$(head -c 64 "$R/var/lib/cloud/data/instance-id" 2>/dev/null)
case "$id" in
  ''|*[!A-Za-z0-9._-]*) ;;
  *) set -- "$@" --label "instance-id=$id" ;;
esac
# What the cloud gave this machine is not for its jobs: none runs that could read it.
export BILLOW_METADATA="${{BILLOW_METADATA:-closed}}"
exec billow join {heads} --token-file "$R/etc/billow/token" --node-name "$name" \
  --data "$R/var/lib/billow"{options} "$@"
END
{cache}cat > "$R/opt/billow/watch.sh" <<'END'
# Ends this machine when the head has not known it for {alone} minutes.
R="${{BILLOW_BOOT_ROOT:-}}"
PATH="$R/opt/billow/bin:$PATH:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
export PATH{proxy}
alone=0
while sleep "${{BILLOW_BOOT_TICK:-60}}"; do
  if billow join --check --data "$R/var/lib/billow" >/dev/null 2>&1; then
    alone=0
  else
    alone=$((alone + 1))
  fi
  [ "$alone" -lt {alone} ] || sh "$R/opt/billow/end.sh"
done
END
if [ -d /run/systemd/system ] && [ -z "${{BILLOW_BOOT_PLAIN:-}}" ]; then
  for unit in node watch; do
    cat > "/etc/systemd/system/billow-$unit.service" <<END
[Unit]
Description=Billow $unit of {name}
After=network-online.target
Wants=network-online.target
[Service]
ExecStartPre=-/bin/sh /opt/billow/disks.sh
ExecStart=/bin/sh /opt/billow/$unit.sh
Restart=always
RestartSec=2
RestartPreventExitStatus=78
KillMode=process
[Install]
WantedBy=multi-user.target
END
  done
  systemctl daemon-reload
  systemctl enable --now billow-node billow-watch
else
  setsid sh "$R/opt/billow/watch.sh" </dev/null >/dev/null 2>&1 &
  setsid sh -c 'while :; do sh "$1"; [ $? -ne 78 ] || exit; sleep 2; done' - \
    "$R/opt/billow/node.sh" </dev/null >> "$R/var/lib/billow/node.log" 2>&1 &
fi
)sh";

// The first machine formats the disk. A file system that cannot be repaired is made anew: it holds
// nothing that cannot be fetched again.
constexpr std::string_view cache_script = R"sh(cat > "$R/opt/billow/cache.sh" <<'END'
# Waits for the disk with the caches of earlier machines and mounts it.
R="${{BILLOW_BOOT_ROOT:-}}"
dir="$R/var/cache/billow"
mkdir -p "$dir"
mountpoint -q "$dir" && exit
left={wait}
while [ "$left" -gt 0 ]; do
  for disk in {disks}; do
    [ -b "$disk" ] && [ "$(lsblk -nro NAME "$disk" | wc -l)" = 1 ] &&
      [ -z "$(lsblk -nro MOUNTPOINT "$disk" | tr -d '\n')" ] || continue
    blkid -p "$disk" >/dev/null
    [ $? -ne 2 ] || mkfs.ext4 -q -m 0 -L billow-cache "$disk" || continue
    [ "$(blkid -p -o value -s LABEL "$disk")" = billow-cache ] || continue
    e2fsck -p "$disk" >/dev/null
    [ $? -lt 4 ] || mkfs.ext4 -q -F -m 0 -L billow-cache "$disk" || continue
    mount -o noatime "$disk" "$dir" || continue
    chmod 711 "$dir"
    rm -rf "$dir"/boxes/*/run "$dir"/boxes/*/tmp
    exit 0
  done
  left=$((left - 1))
  sleep 1
done
echo "the cache disk did not come; this machine does without" >&2
exit 1
END
)sh";

// Tests have their devices below a directory, too.
std::string cache_part(const Order& order, const BootOptions& options) {
  if (order.machine.cache.empty() || options.cache_disks.empty())
    return {};
  std::vector<std::string> disks;
  for (const std::string& disk : split(options.cache_disks, ' '))
    disks.push_back("\"$R\"" + disk);
  return fmt::format(fmt::runtime(cache_script), fmt::arg("disks", join(disks, " ")),
                     fmt::arg("wait", cache_wait_max.ns / seconds(1).ns));
}

}  // namespace

std::map<std::string, std::string> boot_labels(const Order& order, const billow::Pool& settings) {
  std::map<std::string, std::string> labels = settings.labels;
  if (const auto& offer = order.machine.offer) {
    const auto set = [&](const char* key, const std::string& value) {
      if (!value.empty())
        labels[key] = value;
    };
    set("region", offer->region);
    set("zone", offer->zone);
    set("instance", offer->instance);
    set("market", offer->spot ? "spot" : "on-demand");
    set("fabric", offer->fabric);
  }
  return labels;
}

std::int64_t boot_disk_gib(const Machine& machine, std::int64_t usual_gib) {
  if (machine.disk_mib == 0)
    return usual_gib;
  return std::max(usual_gib, (machine.disk_mib + 1023) / 1024 + boot_system_gib);
}

std::string boot_script(const Order& order,
                        const billow::Pool& settings,
                        const BootOptions& options) {
  const std::string name = order.machine.name;
  const std::string rank =
      order.machine.nodes > 1
          ? fmt::format("printf '{}.%s' \"$({})\" > \"$R/opt/billow/name\"", name,
                        options.rank.empty() ? "echo 0" : options.rank)
          : fmt::format("printf '%s' {} > \"$R/opt/billow/name\"", shell_quote(name));
  return fmt::format(
      fmt::runtime(script), fmt::arg("name", name), fmt::arg("rank", rank),
      fmt::arg("token", order.token), fmt::arg("authority", trim(order.authority)),
      fmt::arg("proxy", proxy_lines(settings)), fmt::arg("disk_kib", order.machine.disk_mib * 1024),
      fmt::arg("end", options.end.empty() ? "poweroff" : options.end),
      fmt::arg("head", shell_quote(first_head(order.head_url))),
      fmt::arg("heads", shell_quote(order.head_url)), fmt::arg("hash", order.program_sha256),
      fmt::arg("options", join_options(order, settings)),
      fmt::arg("cache", cache_part(order, options)),
      fmt::arg("alone", boot_alone_max.ns / minutes(1).ns));
}

std::string cloud_init(const Order& order, const billow::Pool& settings) {
  const std::string join = fmt::format(
      "BILLOW_METADATA=closed billow join {} --token-file /etc/billow/token --node-name {} --data "
      "/var/lib/billow{}",
      shell_quote(order.head_url), shell_quote(order.machine.name), join_options(order, settings));
  return fmt::format(R"(#cloud-config
write_files:
  - path: /etc/billow/token
    permissions: "0600"
    content: "{}\n"
  - path: /etc/systemd/system/billow-node.service
    content: |
      [Unit]
      Description=Billow node {}
      After=network-online.target
      Wants=network-online.target
      [Service]
      ExecStart=/usr/bin/env {}
      Restart=always
      RestartSec=2
      KillMode=process
      [Install]
      WantedBy=multi-user.target
runcmd:
  - [systemctl, daemon-reload]
  - [systemctl, enable, --now, billow-node]
)",
                     order.token, order.machine.name, join);
}

}  // namespace billow::pool
