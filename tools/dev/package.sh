# ./dev package [--key FILE] [--arch x86_64|aarch64]: build dist/: .deb, bundle, client formula.
# With --key (a private key of ssh) the checksums are signed, and install.sh accepts the bundle
# without --unsigned.
key=
case ${1:-} in --key) key=$(realpath "$2"); shift 2 ;; esac
install dpkg-dev xz-utils openssh-client
. "$root/tools/dev/bundle.sh"
# Programs of another architecture do not run here; the pages are the same.
man_by=$stage/bin/billow
[ "$arch" = "$(uname -m)" ] || man_by=$build/bin/billow
"$man_by" help --man-dir "$stage/share/man/man1"
"$root/packaging/make_packages.sh" "$stage" "$version" "$arch" "$root/dist" $key
(cd "$root/dist" && ls -l billow_*.deb "$name.tar.gz" install.sh SHA256SUMS*) >&2
[ -n "$key" ] || say 'dev: not signed; install.sh then needs --unsigned. Sign with ./dev package --key FILE'
