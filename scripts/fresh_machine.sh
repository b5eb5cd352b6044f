#!/usr/bin/env bash
# Runs a command of the README as a new user would: on a minimal Debian 12 (debootstrap) that holds nothing but git and
# a clone of this tree. Whatever install step is missing fails here. The committed state (HEAD) is what is tested.
#
#   scripts/fresh_machine.sh [COMMAND...]      default: scripts/smoke.sh, run in the clone
#
# The mirror comes from TRAINCTL_DEBIAN_MIRROR or apt's own configuration; proxy and certificate settings of the
# environment and of apt are carried in. Where chroot or mount is not allowed it says that it was skipped, and why, and
# exits 77. Needs about 3 GB under TMPDIR.
source "$(dirname "$0")/common.sh"

skip() {
    printf 'SKIPPED: fresh machine: %s\n' "$*"
    exit 77
}

command=("$@")
[ ${#command[@]} -gt 0 ] || command=(scripts/smoke.sh)

[ "$(id -u)" -eq 0 ] || skip "needs root for debootstrap, chroot and mount"
command -v debootstrap >/dev/null || skip "debootstrap is missing (scripts/install_deps.sh --checks)"
git -C "$root" rev-parse --verify -q HEAD >/dev/null || skip "the tree has no commit to clone"

work=$(mktemp -d "${TMPDIR:-/tmp}/trainctl-fresh-XXXXXX")
machine=$work/machine
mounted=()

clean_up() {
    local status=$?
    trap - EXIT
    local stuck=no
    for ((i = ${#mounted[@]} - 1; i >= 0; i--)); do
        umount "${mounted[i]}" || umount -l "${mounted[i]}" || stuck=yes
    done
    # Never delete below something that is still mounted: it would be the host's own.
    if [ "$stuck" = no ] && ! grep -qF " $work/" /proc/self/mountinfo; then
        rm -rf --one-file-system "$work"
    else
        say "something is still mounted under $work; left in place"
    fi
    exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# bind SOURCE TARGET [options]
bind() {
    mkdir -p "$2"
    mount --bind "$1" "$2" || return 1
    mounted+=("$2")
    mount --make-private "$2"
}

bind "$work" "$work/probe" 2>/dev/null || skip "mount is not allowed here"
umount "$work/probe" && mounted=()

mirror=${TRAINCTL_DEBIAN_MIRROR:-}
if [ -z "$mirror" ]; then
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Codename: bookworm' 'Component: main' \
        2>/dev/null | head -n 1)
fi
[ -n "$mirror" ] || die "expected a Debian 12 mirror in the configuration of apt, found none; set TRAINCTL_DEBIAN_MIRROR"

say "making a minimal Debian 12 from $mirror"
start=$SECONDS
if ! debootstrap --variant=minbase --include=ca-certificates,git bookworm "$machine" "$mirror" >"$work/debootstrap.log" 2>&1; then
    tail -n 20 "$work/debootstrap.log" >&2
    if grep -qiE 'operation not permitted|cannot install into target|mknod' "$work/debootstrap.log"; then
        skip "debootstrap may not make device nodes or mounts here"
    fi
    die "debootstrap failed"
fi
chroot "$machine" /bin/true || skip "chroot is not allowed here"
say "made in $((SECONDS - start)) s"

bind /proc "$machine/proc" || skip "mounting proc is not allowed here"
bind /dev "$machine/dev" || skip "mounting dev is not allowed here"
bind /sys "$machine/sys" || say "mounting sys is not allowed here: the machine will not see its cores' topology"
if [ -d /dev/shm ]; then bind /dev/shm "$machine/dev/shm" || skip "mounting dev/shm is not allowed here"; fi

# The way to the network: names, certificates, apt's proxy.
cp -L /etc/resolv.conf /etc/hosts "$machine/etc/"
printf 'deb %s bookworm main\n' "$mirror" >"$machine/etc/apt/sources.list"
apt-config dump 2>/dev/null |
    grep -iE '^Acquire::(http|https|ftp)::.*(proxy|cainfo|capath|verify|cert)|^Acquire::(Retries|ForceIPv)' \
        >"$machine/etc/apt/apt.conf.d/90host" || true
if compgen -G '/usr/local/share/ca-certificates/*.crt' >/dev/null; then
    cp /usr/local/share/ca-certificates/*.crt "$machine/usr/local/share/ca-certificates/"
    chroot "$machine" update-ca-certificates >/dev/null 2>&1
fi
settings=(HOME=/root "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" LANG=C.UTF-8 "TERM=${TERM:-dumb}")
while IFS='=' read -r name value; do
    case "$name" in
        http_proxy | https_proxy | ftp_proxy | no_proxy | HTTP_PROXY | HTTPS_PROXY | NO_PROXY | ALL_PROXY | all_proxy)
            settings+=("$name=$value") ;;
        *CERT* | *CA_BUNDLE | *CAINFO)  # a file that the new machine has, too
            if [ -e "$machine$value" ]; then settings+=("$name=$value"); fi ;;
    esac
done < <(env)

git clone -q --no-hardlinks "$root" "$machine/root/trainctl"
say "on the fresh machine: ${command[*]}"
start=$SECONDS
chroot "$machine" /usr/bin/env -i "${settings[@]}" /bin/bash -c 'cd /root/trainctl && exec "$@"' fresh "${command[@]}"
say "the fresh machine ran it in $((SECONDS - start)) s"
