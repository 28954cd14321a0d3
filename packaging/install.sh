#!/bin/sh
# Installs Billow from a bundle, without root: programs in PREFIX/bin, libraries in PREFIX/lib,
# manual pages and completions in PREFIX/share. Run it beside the bundle, or inside an unpacked one.
#
#   sh install.sh [--prefix DIR] [--from BUNDLE.tar.gz] [--signers FILE] [--unsigned]
#
# --prefix DIR    default: ~/.local, or /usr/local for root --from FILE     the bundle (default: the
# one beside this script, or the directory of this script) --signers FILE  keys that may sign a
# release (ssh-keygen's allowed_signers); default: those of the installation that
#                 is upgraded, else release-signers beside the bundle
# --unsigned      install although nobody signed it, for bundles that you built yourself
set -eu

say() { printf 'install: %s\n' "$*" >&2; }
die() { say "$1"; [ $# -lt 2 ] || printf 'hint: %s\n' "$2" >&2; exit 1; }

here=$(cd "$(dirname "$0")" && pwd)
prefix= from= signers= unsigned=
while [ $# -gt 0 ]; do
  case $1 in
    --prefix) prefix=${2:?--prefix needs a directory}; shift 2 ;;
    --from) from=${2:?--from needs a file}; shift 2 ;;
    --signers) signers=${2:?--signers needs a file}; shift 2 ;;
    --unsigned) unsigned=yes; shift ;;
    *) die "unknown option $1" "sh install.sh [--prefix DIR] [--from FILE] [--signers FILE] [--unsigned]" ;;
  esac
done
[ "$(uname -s)" = Linux ] || die "this bundle is for Linux" "for macOS, see packaging/brew in the sources"
if [ -z "$prefix" ]; then
  if [ "$(id -u)" -eq 0 ]; then prefix=/usr/local; else prefix=$HOME/.local; fi
fi

# The bundle: a file beside this script, or this directory.
unpacked=
if [ -z "$from" ] && [ -x "$here/bin/billow" ]; then
  unpacked=$here
elif [ -z "$from" ]; then
  for file in "$here"/billow-*-linux-"$(uname -m)".tar.gz; do
    [ -f "$file" ] || continue
    [ -z "$from" ] || die "there are several bundles beside install.sh" "name the one to install: --from FILE"
    from=$file
  done
  [ -n "$from" ] || die "there is no bundle for $(uname -m) beside install.sh" "name it: --from FILE"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bundle=$work/bundle.tar.gz

# Who signed it. A bundle that was unpacked by hand cannot be checked any more.
if [ -n "$from" ] && [ -z "$unsigned" ]; then
  folder=$(cd "$(dirname "$from")" && pwd)
  if [ -z "$signers" ]; then
    signers=$folder/release-signers
    [ -f "$prefix/share/billow/release-signers" ] && signers=$prefix/share/billow/release-signers
  fi
  for needed in "$folder/SHA256SUMS" "$folder/SHA256SUMS.sig" "$signers"; do
    [ -f "$needed" ] || die "$needed is missing, so the bundle cannot be checked" \
      "download it too, or install without a check: --unsigned"
  done
  command -v ssh-keygen >/dev/null ||
    die "ssh-keygen is missing, which checks the signature" "install openssh-client, or use --unsigned"
  ssh-keygen -Y verify -f "$signers" -I release@billow -n billow-release -s "$folder/SHA256SUMS.sig" \
    <"$folder/SHA256SUMS" >/dev/null 2>&1 || die "the signature of SHA256SUMS is not by a key in $signers" \
    "download the release again; do not install this one"
  # The copy that is checked is the one that is unpacked.
  cp "$from" "$bundle"
  wanted=$(awk -v name="$(basename "$from")" '$2 == name || $2 == "*" name { print $1 }' "$folder/SHA256SUMS")
  [ -n "$wanted" ] && [ "$(sha256sum <"$bundle" | cut -d' ' -f1)" = "$wanted" ] ||
    die "$(basename "$from") is not the file that was signed" "download it again; do not install this one"
  say "the signature is good ($(ssh-keygen -l -f "$signers" 2>/dev/null | head -1 | cut -d' ' -f2))"
fi
if [ -n "$from" ]; then
  [ -f "$bundle" ] || cp "$from" "$bundle"
  tar -C "$work" -xzf "$bundle"
  unpacked=$(echo "$work"/billow-*)
  [ -x "$unpacked/bin/billow" ] || die "$from is not a bundle of Billow"
fi
"$unpacked/bin/billow" version >/dev/null 2>&1 ||
  die "the programs do not run here" "they need Linux on $(uname -m) with glibc 2.36 or newer (Debian 12, Ubuntu 24.04)"

mkdir -p "$prefix" 2>/dev/null && [ -w "$prefix" ] || die "$prefix cannot be written" "choose another: --prefix DIR"
list=$prefix/share/billow/installed
mkdir -p "$prefix/share/billow"
before=
[ -f "$list" ] && before=$(cat "$list")
# Each file appears as a whole: programs that run keep their old file.
(cd "$unpacked" && find bin lib share -type f) | while IFS= read -r file; do
  mkdir -p "$prefix/$(dirname "$file")"
  cp -p "$unpacked/$file" "$prefix/$file.new.$$"
  mv -f "$prefix/$file.new.$$" "$prefix/$file"
  echo "$file"
done >"$list.new"
cp "$unpacked/install.sh" "$prefix/share/billow/install.sh" 2>/dev/null && echo share/billow/install.sh >>"$list.new"
if [ -n "$signers" ] && [ -z "$unsigned" ]; then
  [ "$signers" = "$prefix/share/billow/release-signers" ] || cp "$signers" "$prefix/share/billow/release-signers"
  echo share/billow/release-signers >>"$list.new"
fi
# What an earlier version had and this one has not.
echo "$before" | while IFS= read -r file; do
  [ -z "$file" ] || grep -qxF "$file" "$list.new" || rm -f "$prefix/$file"
done
mv "$list.new" "$list"

say "$("$prefix/bin/billow" version) is installed in $prefix"
case :$PATH: in
  *:"$prefix/bin":*) ;;
  *) say "add it to your PATH: export PATH=$prefix/bin:\$PATH" ;;
esac
[ -n "$before" ] ||
  say "try it: billow run --gpus 1 -- nvidia-smi        (without a GPU first: billow up --background --sim 8xH100)"
