#!/bin/bash
# The demo: a daemon with the local driver on a temporary root, in a mount
# namespace of its own; pods with volumes of many kinds; a claim that grows; a daemon
# that is killed and restarted; and nothing left at the end. Each step checks
# its result, and the first failure ends the demo with exit code 1.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$(realpath "$1")

if [ "$(id -u)" != 0 ]; then
	echo "demo: it mounts file systems: run it as root (sudo make demo)" >&2
	exit 1
fi
if [ -z "${DEMO_INSIDE-}" ]; then
	DEMO_INSIDE=1 exec unshare --mount --propagation private "$0" "$bin"
fi

work=$(mktemp --directory --tmpdir csi-volmgr-demo.XXXXXX)
root=$work/root
socket=$work/csi-volmgr.sock
daemon=

say() { printf '\n\033[1m== %s\033[0m\n' "$*"; }
fail() { echo "demo: $*" >&2; exit 1; }
volmgr() { "$bin" --socket="$socket" "$@"; }
shown() { echo "\$ csi-volmgr $*"; volmgr "$@"; }

# until SECONDS WHAT COMMAND...: waits until the command succeeds.
until_true() {
	local end=$((SECONDS + $1)) what=$2
	shift 2
	until "$@"; do
		[ "$SECONDS" -lt "$end" ] || fail "$what: not within the time"
		[ -z "$daemon" ] || kill -0 "$daemon" 2>/dev/null || fail "the daemon has ended; it said: $(tail -n 20 "$work"/daemon.*.log)"
		sleep 0.1
	done
}

start() { # which life it is
	"$bin" --socket="$socket" run --local-driver --host-path-allow=/usr/share --image-layouts="$PWD/examples/image" \
		--root-dir="$root" --state-dir="$work/state" --storage-id=demo --http-address=off --log-level=debug >"$work/daemon.$1.log" 2>&1 &
	daemon=$!
	until_true 20 "the daemon answers" answers
}
answers() { volmgr get drivers >/dev/null 2>&1; }

mounts() { awk -v root="$work/" 'index($5, root) == 1 {print $1, $3, $5}' /proc/self/mountinfo | sort -k3; } # id, device, path
loops() { losetup --list --noheadings --output NAME,BACK-FILE | awk -v root="$work/" 'index($2, root) == 1 {print $1}'; }
nothing() { [ -z "$("$@")" ]; }
# How often volumes were staged and published in one life, from the daemon's log.
calls() { grep -cE 'msg="call begins" .*op=(Stage|Publish|Republish) ' "$work/daemon.$1.log" || true; }

finish() {
	local code=$?
	trap - EXIT INT TERM
	if [ -n "$daemon" ] && kill -TERM "$daemon" 2>/dev/null; then
		wait "$daemon" || true
	fi
	if [ "$code" != 0 ]; then
		echo "--- the daemon's last lines:" >&2
		tail -n 30 "$work"/daemon.*.log >&2 || true
		mounts | awk '{print $3}' | sort --reverse | xargs -r umount --lazy || true
		loops | xargs -r -n1 losetup --detach || true
	fi
	# Never delete through a mount: a mounted directory stays.
	if nothing mounts; then
		rm -rf --one-file-system "$work"
	else
		echo "demo: $work is left, since something is still mounted below it" >&2
	fi
	exit "$code"
}
trap finish EXIT
trap 'exit 130' INT TERM

say "A daemon with the local driver, on $root"
start 1
until_true 20 "the driver registers" sh -c "'$bin' --socket='$socket' get drivers | grep -q 'local.csi-volmgr.dev *Up'"
shown get drivers

say "A claim of 256Mi, a raw block device of 64Mi, a pod with these, an emptyDir, and what objects say as files; one with other kinds"
shown apply -f examples
shown wait pod web --for=mounted --timeout=30s
shown get mounts --pod web
shown wait pod more --for=mounted --timeout=30s
shown get mounts --pod more
shown get volumes
shown get pvc

path() { volmgr get mounts --pod web | awk -v name="$1" '$2 == name {print $NF}'; }
data=$(path data) disk=$(path disk) scratch=$(path scratch) settings=$(path settings)
password=$(path password) about=$(path about) all=$(path all)
mountpoint --quiet "$data" || fail "$data is not mounted"
[ -b "$(readlink -f "$disk")" ] || fail "$disk is no block device"

say "Written through the mounts, and read back"
echo "the quick brown fox" >"$data/file"
[ "$(cat "$data/file")" = "the quick brown fox" ]
echo "data:     $(cat "$data/file")"
echo "raw block" | dd of="$disk" bs=512 conv=sync,fsync status=none
echo "disk:     $(dd if="$disk" bs=9 count=1 status=none)"
[ "$(dd if="$disk" bs=9 count=1 status=none)" = "raw block" ]
echo "scratched" >"$scratch/file"
echo "scratch:  $(cat "$scratch/file")"
[ "$(cat "$settings/greeting")" = "hello from csi-volmgr" ]
echo "settings: $(cat "$settings/greeting")"
[ "$(cat "$about/name")" = web ]
[ "$(stat --file-system --format=%T "$password")" = tmpfs ] || fail "$password is not in memory"
[ "$(cat "$all/greeting")$(cat "$all/password")" = "$(cat "$settings/greeting")$(cat "$password/password")" ]
! grep -rq "$(cat "$password/password")" "$work/state/state.db" "$work"/daemon.*.log || fail "the journal or the log has the secret"
echo "about:    $(cat "$about/name") on $(cat "$about/cpus") CPUs; the secret is in memory, and in no journal or log"

size_is() { # the volume's device has exactly MiB, and its file system nearly all of it
	local device total
	device=$(findmnt --noheadings --output SOURCE "$data")
	total=$(df --block-size=1M --output=size "$data" | tail -n 1)
	[ "$(blockdev --getsize64 "$device")" = $(($1 * 1024 * 1024)) ] && [ "$total" -le "$1" ] && [ "$total" -gt $(($1 * 3 / 4)) ]
}
say "The file system is 256Mi"
size_is 256 || fail "it is not: $(df -h "$data")"
df --human-readable --print-type "$data"

# The kernel grows a mounted ext4 only for a process with CAP_SYS_RESOURCE (bit 24), which a container may lack.
grows_mounted() {
	[ "$(findmnt --noheadings --output FSTYPE "$data")" != ext4 ] || (((0x$(awk '/^CapEff:/ {print $2}' /proc/self/status) >> 24) & 1))
}
say "The claim grows to 512Mi, while it is mounted"
sed 's/256Mi/512Mi/' examples/claim.yaml | volmgr apply -f -
if ! grows_mounted; then
	echo "root has no CAP_SYS_RESOURCE here, which a mounted ext4 needs to grow: it grows when the pod is here again"
	shown delete pod web
	shown wait pod web --for=unmounted --timeout=30s
	shown apply -f examples/pod.yaml
	shown wait pod web --for=mounted --timeout=30s
fi
until_true 20 "the file system has 512Mi" size_is 512
df --human-readable --print-type "$data"
[ "$(cat "$data/file")" = "the quick brown fox" ] || fail "growing lost the data"

say "The daemon is killed (SIGKILL) and started again"
before=$(mounts)
kill -KILL "$daemon"
wait "$daemon" 2>/dev/null || true
daemon=
[ "$(mounts)" = "$before" ] || fail "a mount went with the daemon"
start 2
shown wait pod web --for=mounted --timeout=30s
shown wait pod more --for=mounted --timeout=30s
[ "$(mounts)" = "$before" ] || fail "the mounts changed: before
$before
after
$(mounts)"
echo "mount ids before and after are the same: $(echo "$before" | awk '{printf "%s ", $1}')"
[ "$(calls 1)" -ge 6 ] || fail "the log of the first life does not show the calls that the demo counts"
sleep 2 # time for anything that the daemon may do by itself
again=$(calls 2)
echo "Stage and Publish since the restart: $again"
[ "$again" = 0 ] || fail "a volume that was present was staged or published again"
[ "$(cat "$data/file")" = "the quick brown fox" ]

say "The pods are deleted"
shown delete pod web more
shown wait pod web --for=unmounted --timeout=30s
shown wait pod more --for=unmounted --timeout=30s
until_true 20 "everything is unmounted" nothing mounts
until_true 20 "the loop devices are free" nothing loops
echo "nothing is mounted; the claims' data is kept:"
shown get pvc

say "The claims are deleted, by name, and so is their data"
shown delete pvc data disk
none() { ! volmgr get "$1" 2>/dev/null | grep -qE "$2"; }
until_true 20 "the claims are gone" none pvc '(data|disk|more-own)'
shown delete -f examples
until_true 20 "the volumes are gone" none pv 'pvc-'

say "Nothing is left"
nothing mounts || fail "mounted: $(mounts)"
nothing loops || fail "loop devices: $(loops)"
none volumes 'local.csi-volmgr.dev|kubernetes.io' || fail "records: $(volmgr get volumes)"
left=$(find "$root/pods" -mindepth 1 2>/dev/null; find "$root/plugins/kubernetes.io" -mindepth 1 -path '*local.csi-volmgr.dev/*' 2>/dev/null; find "$work/state" -name '*.img' 2>/dev/null)
[ -z "$left" ] || fail "left behind: $left"
echo "no mount, no loop device, no directory, no record"

kill -TERM "$daemon"
wait "$daemon" || fail "the daemon ended with an error"
daemon=
say "Done in $SECONDS seconds"
