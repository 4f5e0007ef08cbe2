#!/bin/bash
# fresh-machine.sh [COMMAND..]: run the commands (default: "make demo" and "make test") on a fresh machine.
#
# The fresh machine is a new root that has make, the certificates of the web and otherwise only what every
# Debian has (debootstrap --variant=minbase). A clone of this repository's HEAD lies in its /root, which other
# users cannot enter. The script needs debootstrap, git, root, and the right to mount. The root has mounts and
# processes of its own (unshare), so nothing of it remains, whatever ends the script. Where no root can be
# made, the script says why and runs the commands here.
#
# The root takes from this machine: suite and package sources, settings and keys of apt, proxies,
# certificates, host names, settings of pip, and the variables CI, CORPUS, REAL, LONG, JOBS, ONLY and LIMIT.
#
# The exit status is 0 if every command ended with 0. The last line is that of the last command.
#
#   TMPDIR=DIR   make the root in DIR (default: /var/tmp); it takes 2 GB
cd "$(dirname "$0")/.." || exit 1
say() { echo "fresh-machine: $*"; }

# Run the commands in turn by RUNNER, also after a failure. The status is that of the last failure.
run_all() # RUNNER COMMAND..
{
    local runner=$1 command rc=0
    shift
    for command; do
        say "$command ($(date +%T))"
        $runner "$command" </dev/null || { rc=$?; say "$command: exit status $rc" >&2; }
    done
    return $rc
}

# Print "MIRROR SUITE" of the machine's release; of the first source if none is named after the release.
package_source()
{
    local codename
    # shellcheck source=/dev/null
    codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
    apt-get --print-uris update | sed -n "s|^'\(.*\)/dists/\([^/]*\)/InRelease'.*|\1 \2|p" |
        awk -v name="$codename" 'NR == 1 || $2 == name && !found { line = $0; found = $2 == name }
                                 END { if (NR) print line; exit !NR }'
}
# Run debootstrap. It reads no settings of apt, so the proxy of apt goes into its environment.
bootstrap() # ROOT MIRROR SUITE
{
    local proxy
    eval "$(apt-config shell proxy Acquire::http::Proxy)"
    [ -z "$proxy" ] || [ "$proxy" = DIRECT ] || export http_proxy="$proxy"
    debootstrap --variant=minbase --include=make,ca-certificates "$3" "$1" "$2"
}

# Copy a file or folder of this machine to the same place in the root, if this machine has it.
take() # ROOT PATH..
{
    local root=$1 path
    shift
    for path; do
        [ -e "$path" ] || continue
        mkdir -p "$root$(dirname "$path")" && cp -aLT "$path" "$root$path" || return
    done
}
# The folders of this machine that the settings name: packages that lie there, and the texts and models of the
# tests. They appear in the root at the same place, read-only.
named_folders()
{
    local path
    {
        apt-get --print-uris update | sed -n "s|^'\(file\|copy\):/*\(/.*\)/dists/.*|\2|p"
        tr ' ' '\n' <<<"$PIP_FIND_LINKS"
        printf '%s\n' "$CORPUS" "$REAL"
    } | sort -u | while read -r path; do
        case $path in /*) [ ! -d "$path" ] || echo "$path" ;; esac
    done
}
settings=()
take_settings() # ROOT
{
    local root=$1 name folder
    rm -f "$root/etc/apt/sources.list"
    take "$root" /etc/apt /usr/share/keyrings /etc/hosts /etc/resolv.conf /usr/local/share/ca-certificates \
        /etc/pip.conf "$HOME/.pip/pip.conf" "$HOME/.config/pip/pip.conf" || return
    chroot "$root" update-ca-certificates >/dev/null || return
    for name in http_proxy https_proxy ftp_proxy no_proxy HTTP_PROXY HTTPS_PROXY FTP_PROXY NO_PROXY \
        SSL_CERT_FILE REQUESTS_CA_BUNDLE CURL_CA_BUNDLE "${!PIP_@}" CI CORPUS REAL LONG JOBS ONLY LIMIT; do
        [ -n "${!name}" ] || continue
        settings+=("$name=${!name}")
        case $name in
        SSL_CERT_FILE | REQUESTS_CA_BUNDLE | CURL_CA_BUNDLE | PIP_CERT)
            [ -e "$root${!name}" ] || take "$root" "${!name}" || return ;;
        esac
    done
    for folder in $(named_folders); do
        mkdir -p "$root$folder" && mount --bind -o ro "$folder" "$root$folder" || return
    done
}
mount_all() # ROOT
{
    mount -t proc proc "$1/proc" && mount --rbind /sys "$1/sys" && mount -t tmpfs tmpfs "$1/dev/shm" &&
        mount -t devpts -o mode=620,gid=5,ptmxmode=666 devpts "$1/dev/pts"
}

in_root() # COMMAND
{
    local path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
    chroot "$root" /usr/bin/env -i HOME=/root PATH=$path "${settings[@]}" \
        /bin/sh -c "cd \"\$HOME/longhand\" && $1"
}
# The part in the name spaces of its own, as process 1: DIR/root is the root. DIR/made says that it was made.
inside() # DIR COMMAND..
{
    local dir=$1 mirror suite
    root=$dir/root
    shift
    read -r mirror suite < <(package_source 2>"$dir/why") || return 1
    say "debootstrap $suite ($(date +%T))"
    if ! bootstrap "$root" "$mirror" "$suite" >"$dir/log" 2>&1; then
        tail -n 3 "$dir/log" "$root/debootstrap/debootstrap.log" >"$dir/why" 2>&1
        return 1
    fi
    { take_settings "$root" && mount_all "$root" && chmod 0700 "$root/root" &&
        git clone -q . "$root/root/longhand"; } \
        >"$dir/why" 2>&1 || return 1
    : >"$dir/made"
    say "a root of $(du -shx "$root" | cut -f1), with $(chroot "$root" dpkg-query -f . -W | wc -c) packages"
    run_all in_root "$@"
}

if [ "$1" = --inside ]; then
    shift
    inside "$@"
    exit
fi
[ $# -gt 0 ] || set -- "make demo" "make test"
why=
[ "$(id -u)" = 0 ] || why="this needs root"
for tool in debootstrap apt-get git unshare chroot; do
    [ -n "$why" ] || command -v $tool >/dev/null || why="no $tool"
done
if [ -z "$why" ]; then
    dir=$(mktemp -d "${TMPDIR:-/var/tmp}/longhand-fresh.XXXXXX") || exit 1
    child=
    # Process 1 takes all others with it. The mounts end with them, so only plain files are removed.
    clean_up()
    {
        # shellcheck disable=SC2046
        [ -z "$child" ] || kill -9 $(cat "/proc/$child/task/$child/children") "$child" 2>/dev/null
        wait
        rm -rf --one-file-system "$dir"
    }
    trap clean_up EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    trap 'exit 129' HUP
    unshare --mount --pid --fork --kill-child bash "$0" --inside "$dir" "$@" 2>&1 &
    child=$!
    wait $child
    rc=$?
    child=
    [ ! -e "$dir/made" ] || exit $rc
    why=$(cat "$dir/why" 2>/dev/null)
fi
say "no fresh root can be made here: ${why:-unshare failed}"
say "the commands run on this machine as it is"
here() { sh -c "$1"; }
run_all here "$@"
