#!/bin/bash
# make-deb.sh PROGRAM: build a Debian package of the files that `make install` installs, with the program
# stripped, and of scripts/debian-copyright. It goes to build/longhand_VERSION_ARCHITECTURE.deb, or into the
# folder DEB. `make deb` calls this script.
#
# The package needs the libraries of the release that it was built on; dpkg-shlibdeps finds their packages.
# VERSION is that of the program, the day of its commit, and the commit.
set -e
cd "$(dirname "$0")/.."
program=$(realpath "$1") out=$(realpath "${DEB:-build}")
for tool in dpkg-deb dpkg-shlibdeps strip; do
    command -v $tool >/dev/null && continue
    echo "make deb: $tool is missing; apt-get install dpkg-dev" >&2
    exit 1
done
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir -p "$tmp/debian" "$tmp/root/DEBIAN"
env -u MAKEFLAGS -u MFLAGS make -s --no-print-directory install BUILD="$(dirname "$program")" \
    DESTDIR="$tmp/root" PREFIX=/usr
strip "$tmp/root/usr/bin/longhand"
gzip -9n "$tmp/root/usr/share/man/man1/longhand.1"
install -m 644 scripts/debian-copyright "$tmp/root/usr/share/doc/longhand/copyright"
mv "$tmp/root/usr/share/zsh/site-functions" "$tmp/root/usr/share/zsh/vendor-completions"   # as Debian's zsh

arch=$(dpkg --print-architecture)
commit=$("$program" version | sed -n 's/^commit: //p')
day=$(git show -s --format=%cd --date=format:%Y%m%d 2>/dev/null) || day=
version=$("$program" --version | sed -n '1s/^longhand //p')+${day:+$day.}$(tr -c 'a-z0-9\n' . <<<"$commit")
echo "Source: longhand" >"$tmp/debian/control"
depends=$(cd "$tmp" && dpkg-shlibdeps -O root/usr/bin/longhand 2>/dev/null | sed -n 's/^shlibs:Depends=//p')
[ -n "$depends" ] || { echo "make deb: dpkg-shlibdeps finds no packages of the libraries" >&2; exit 1; }
cat >"$tmp/root/DEBIAN/control" <<CONTROL
Package: longhand
Version: $version
Architecture: $arch
Maintainer: ${MAINTAINER:-the builder of this package <root@$(hostname)>}
Installed-Size: $(du -sk "$tmp/root/usr" | cut -f1)
Depends: $depends
Section: science
Priority: optional
Description: writes book-length text with a language model
 longhand reads a Hugging Face model directory or a GGUF file, and writes texts of 100,000 tokens and more.
 Jobs are in a durable queue. Drafters make long texts faster and change no byte of them.
CONTROL
# The user of the unit. The unit is neither enabled nor started: that is the administrator's decision.
cat >"$tmp/root/DEBIAN/postinst" <<'POSTINST'
#!/bin/sh
set -e
if [ "$1" = configure ] && command -v systemd-sysusers >/dev/null; then systemd-sysusers longhand.conf; fi
if [ "$1" = configure ] && [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
POSTINST
chmod 755 "$tmp/root/DEBIAN/postinst"
find "$tmp/root" -type d -exec chmod 755 {} +
dpkg-deb --root-owner-group --build "$tmp/root" "$out/longhand_${version}_$arch.deb" >&2
