#include "pool/head_boot.h"

#include <fmt/format.h>

#include "base/text.h"
#include "pool/boot.h"

std::string_view billow_embedded_head_unit();

namespace billow::pool {
namespace {

// Python is part of every image with cloud-init, which is written in it. Each connection has a
// thread, so that one that stalls keeps nobody out.
constexpr std::string_view receiver = R"py(import hashlib, hmac, http.server, os
import ssl, sys, threading, time
folder, port, word, program = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
patience, waits = float(sys.argv[5]), set(sys.argv[6:])
last = time.monotonic()
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version, timeout = "HTTP/1.1", 60
    def log_message(self, *args):
        pass
    def reply(self, status, text):
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())
        self.close_connection = True
    def do_GET(self):
        self.reply(200, " ".join(sorted(waits)))
    def do_PUT(self):
        global last
        name = self.path[1:]
        said = self.headers.get("Authorization", "")[7:]
        if not hmac.compare_digest(hashlib.sha256(said.encode()).hexdigest(), word):
            return self.reply(403, "wrong word")
        if name not in waits:
            return self.reply(404, "not awaited")
        part, got = os.path.join(folder, name + ".part"), hashlib.sha256()
        with open(part, "wb") as f:
            while size := int(self.rfile.readline(100), 16):
                while size:
                    data = self.rfile.read(min(size, 1 << 16))
                    if not data:
                        raise OSError("cut off")
                    f.write(data)
                    got.update(data)
                    size -= len(data)
                    last = time.monotonic()
                self.rfile.readline(3)
            self.rfile.readline(3)
        if name == "program" and got.hexdigest() != program:
            return self.reply(422, "this is another program")
        os.rename(part, os.path.join(folder, name))
        self.reply(200, "ok")
        waits.discard(name)
class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    def handle_error(self, *args):
        pass
server = Server(("0.0.0.0", port), Handler)
tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
tls.minimum_version = ssl.TLSVersion.TLSv1_3
tls.load_cert_chain(folder + "/cert.pem", folder + "/key.pem")
server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
threading.Thread(target=server.serve_forever, daemon=True).start()
while waits:
    time.sleep(0.2)
    if time.monotonic() - last > patience:
        os._exit(1)
)py";

// ROOT, PLAIN and USER let tests run the script beside other machines: below a directory, without
// systemd, as an account that exists there.
constexpr std::string_view script = R"sh(#!/bin/sh
# Makes this machine the head of the Billow installation {installation}
R="${{BILLOW_BOOT_ROOT:-}}"
mkdir -p "$R/opt/billow/bin" "$R/var/lib/billow-head" "$R/etc"
umask 077
mkdir -p "$R/opt/billow/in"
cat > "$R/opt/billow/in/cert.pem" <<'END'
{cert}
END
cat > "$R/opt/billow/in/key.pem" <<'END'
{key}
END
cat > "$R/opt/billow/receive.py" <<'END'
{receiver}END
cat > "$R/opt/billow/end.sh" <<'END'
${{BILLOW_BOOT_END:-poweroff}}
END
cat > "$R/opt/billow/head.sh" <<'END'
# The rest of the first start. A machine that gets nothing for {alone} minutes ends itself.
R="${{BILLOW_BOOT_ROOT:-}}"
dir="$R/var/lib/billow-head"
in="$R/opt/billow/in"
PATH="$PATH:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
export PATH
user="${{BILLOW_BOOT_USER:-billow}}"
id "$user" >/dev/null 2>&1 ||
  useradd --system --home-dir /var/lib/billow-head --no-create-home --shell /bin/false "$user"
group=$(id -gn "$user")
left=600
until mountpoint -q "$dir"; do
  for disk in {disks}; do
    [ -b "$disk" ] || continue
    blkid -p "$disk" >/dev/null
    [ $? -ne 2 ] || mkfs.ext4 -q -m 0 -L billow-head "$disk" || continue
    mount -o noatime "$disk" "$dir" && break
  done
  left=$((left - 1))
  [ "$left" -gt 0 ] || sh "$R/opt/billow/end.sh"
  sleep 1
done
grep -q billow-head "$R/etc/fstab" 2>/dev/null ||
  echo "LABEL=billow-head /var/lib/billow-head ext4 noatime,nofail 0 2" >> "$R/etc/fstab"
chmod 711 "$dir"
wait="${{BILLOW_BOOT_WAIT:-$(({alone} * 60))}}"
python3 "$R/opt/billow/receive.py" "$in" {port} {word} {hash} "$wait" {awaited} || {{
  sh "$R/opt/billow/end.sh"
  exit 1
}}
tar -xf "$in/program" -C "$R/opt/billow/bin" && chmod -R a+rX "$R/opt/billow/bin" || exit 1
if [ -e "$in/state" ]; then
  rm -rf "$dir/new"
  mkdir "$dir/new"
  tar --no-same-owner -xf "$in/state" -C "$dir/new" || exit 1
  mv -T "$dir/new" "$dir/data" || exit 1
fi
chown -R "$user:$group" "$dir/data"
rm -rf "$in"
set -- "$R/opt/billow/bin/billow" up --no-agent --data "$dir/data" --listen 0.0.0.0:{port} \
  --public-url {url}
if [ -d /run/systemd/system ] && [ -z "${{BILLOW_BOOT_PLAIN:-}}" ]; then
  mkdir -p /etc/systemd/system/billow-head.service.d
  cat > /etc/systemd/system/billow-head.service.d/machine.conf <<UNIT
[Unit]
RequiresMountsFor=/var/lib/billow-head
[Service]
ExecStart=
ExecStart=$*
UNIT
  cp "$R/opt/billow/billow-head.service" /etc/systemd/system/
  systemctl daemon-reload
  systemctl enable --now billow-head
else
  cd "$dir/data" && HOME="$dir/data" BILLOW_DATA= exec setpriv --reuid "$user" --regid "$group" \
    --clear-groups --no-new-privs "$@"
fi
END
cat > "$R/opt/billow/billow-head.service" <<'END'
{unit}END
chmod 755 "$R/opt/billow" "$R/opt/billow/bin"
setsid sh "$R/opt/billow/head.sh" </dev/null >> "$R/opt/billow/head.log" 2>&1 &
)sh";

}  // namespace

std::string head_script(const HeadBoot& boot) {
  std::vector<std::string> disks;  // tests have their devices below a directory, too
  for (const std::string& disk : split(boot.disk, ' '))
    disks.push_back("\"$R\"" + disk);
  return fmt::format(
      fmt::runtime(script), fmt::arg("installation", boot.installation),
      fmt::arg("cert", trim(boot.cert_pem)), fmt::arg("key", trim(boot.key_pem)),
      fmt::arg("receiver", receiver), fmt::arg("disks", join(disks, " ")),
      fmt::arg("port", boot.port), fmt::arg("word", boot.word_sha256),
      fmt::arg("hash", boot.program_sha256), fmt::arg("alone", boot_alone_max.ns / minutes(1).ns),
      fmt::arg("awaited", boot.state ? "program state" : "program"),
      fmt::arg("url", shell_quote(boot.public_url)), fmt::arg("unit", billow_embedded_head_unit()));
}

}  // namespace billow::pool
