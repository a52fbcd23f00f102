#!/bin/bash
# Installs the package, mounts volumes, upgrades it, tries to remove it, empties
# the node, removes and purges it: in a temporary copy of this system in memory,
# with a stand-in for systemctl that does what the scripts ask.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ "$(id -u)" = 0 ] || { echo "deb-test: it mounts file systems: run this as root" >&2; exit 1; }
if [ -z "${DEB_TEST_INSIDE-}" ]; then
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	for v in v1 v2; do make --no-print-directory -s build VERSION=$v BIN="$work/$v" >/dev/null; done
	for v in v1 v2 v1/again; do hack/deb/build.sh "$work/${v%/*}" "${v%/*}" "$work/debs/$v" >/dev/null; done
	cmp "$work"/debs/v1/*.deb "$work"/debs/v1/again/*.deb # one commit, the same bytes
	DEB_TEST_INSIDE=1 unshare --mount --pid --fork --propagation private "$0" "$work"
	exit
fi

# The copy: this system below, memory above.
work=$1
mount -t tmpfs deb-test "$work"/debs/v1/again # where the layers are
layers=$work/debs/v1/again
mkdir "$layers"/{upper,work,root}
mount -t overlay overlay -o "lowerdir=/,upperdir=$layers/upper,workdir=$layers/work" "$layers/root"
root=$layers/root
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
for dir in run tmp var/lib/kubelet var/lib/csi-volmgr; do
	mkdir -p "$root/$dir"
	mount -t tmpfs deb-test "$root/$dir"
	mount --make-shared "$root/$dir"
done
mkdir -p "$root/run/systemd/system" "$root/tmp/debs"
cp "$work"/debs/v1/*.deb "$work"/debs/v2/*.deb -t "$root/tmp/debs"
cp -r examples "$root/tmp/examples"
umount "$root/var/lib/csi-volmgr" && rmdir "$root/var/lib/csi-volmgr" # the package makes and removes it

# What systemd would do for these scripts: only a service that is Type=notify
# runs, by its ExecStart, with its state and runtime directories.
cat >"$root/usr/bin/systemctl" <<'END'
#!/bin/bash
set -eu
echo "systemctl $*" >>/tmp/systemctl.log
verb=$1; shift
[ "${1-}" = --quiet ] && shift
for unit in "$@"; do
	[ "$unit" = csi-volmgr.service ] || continue
	pid=$(cat /run/daemon.pid 2>/dev/null || true)
	alive() { [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null; }
	case $verb in
	is-active) alive || exit 3 ;;
	stop | try-restart)
		alive || continue
		kill -TERM "$pid"
		while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
		;;&
	start | try-restart)
		mkdir -p /var/lib/csi-volmgr /run/csi-volmgr
		command=$(sed -n 's/^ExecStart=//p' /usr/lib/systemd/system/csi-volmgr.service)
		setsid $command >>/tmp/daemon.log 2>&1 </dev/null &
		echo $! >/run/daemon.pid
		for _ in $(seq 600); do
			csi-volmgr version | grep -q 'none answers' || break
			sleep 0.1
		done
		;;
	esac
done
END
chmod 755 "$root/usr/bin/systemctl"

fail() { echo "deb-test: $*" >&2; tail -n 30 "$root/tmp/daemon.log" >&2; exit 1; }
in_root() { chroot "$root" env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/ DEBIAN_FRONTEND=noninteractive "$@"; }
package() { (cd "$root" && ls tmp/debs/csi-volmgr_"$1"_*.deb); }
mounts() { grep -oE '^[0-9]+ .* /var/lib/kubelet/pods/[^ ]*' <(in_root cat /proc/1/mountinfo 2>/dev/null | sed "s#$root##") | awk '{print $1, $5}' | sort; }

echo "deb-test: install"
in_root dpkg -i "/$(package 1)"
grep -q 'systemctl start csi-volmgr.service csi-volmgr-drain.service' "$root/tmp/systemctl.log" || fail "the services were not started"
in_root csi-volmgr version | grep -q '^daemon: .*v1' || fail "the daemon does not answer"
for file in /usr/lib/systemd/system/csi-volmgr-plugin.socket /etc/containers/containers.conf.d/csi-volmgr.conf; do
	[ -e "$root$file" ] || fail "not installed: $file"
done
grep -qx /etc/containers/containers.conf.d/csi-volmgr.conf "$root/var/lib/dpkg/info/csi-volmgr.conffiles" ||
	fail "an upgrade would replace the operator's containers.conf.d/csi-volmgr.conf"
printf 'local-driver: true\nvolume-plugin: true\n' >>"$root/etc/csi-volmgr/config.yaml"
in_root systemctl try-restart csi-volmgr.service
in_root curl -s --unix-socket /run/docker/plugins/csi.sock -X POST http://csi/Plugin.Activate | grep -q VolumeDriver ||
	fail "the volume plugin does not answer"
in_root csi-volmgr apply -f /tmp/examples
in_root csi-volmgr wait pod web --for=verified --timeout=2m
before=$(mounts)
[ -n "$before" ] || fail "no mounts to be seen"

echo "deb-test: upgrade with volumes mounted"
in_root dpkg -i "/$(package 2)"
in_root csi-volmgr version | grep -q '^daemon: .*v2' || fail "the daemon is not the new one"
in_root csi-volmgr wait pod web --for=verified --timeout=2m
[ "$(mounts)" = "$before" ] || fail "mounts have changed: $(diff <(echo "$before") <(mounts))"
grep -q 'local-driver: true' "$root/etc/csi-volmgr/config.yaml" || fail "the configuration was replaced"
! grep -q 'restart csi-volmgr-drain' "$root/tmp/systemctl.log" || fail "the unit that empties the node was restarted"

echo "deb-test: removing is refused while volumes are here"
! in_root dpkg -r csi-volmgr >"$root/tmp/refused" 2>&1 || fail "it was removed"
grep -q 'not removed while volumes are here' "$root/tmp/refused" || fail "no reason: $(cat "$root/tmp/refused")"
in_root csi-volmgr wait pod web --for=verified --timeout=2m
[ "$(mounts)" = "$before" ] || fail "mounts have changed"

echo "deb-test: remove, purge"
in_root csi-volmgr delete pod web more
in_root csi-volmgr wait pod web --for=unmounted --timeout=2m
in_root csi-volmgr wait pod more --for=unmounted --timeout=2m
in_root csi-volmgr delete pvc data disk more-own
for _ in $(seq 600); do in_root csi-volmgr get pv -o jsonpath='{.items[*].name}' | grep -q pvc- || break; sleep 0.1; done # no user needs the examples' data
in_root dpkg -r csi-volmgr
[ -e "$root/var/lib/csi-volmgr/state.db" ] || fail "removing took the state, which is for purging"
in_root dpkg -P csi-volmgr 2> "$root/tmp/purged"
[ "$(ls -A "$root/var/lib/csi-volmgr")" = audit.log ] || fail "left after purging: $(ls -A "$root/var/lib/csi-volmgr"), and not the log of what operators had done alone"
grep -q 'left in /var/lib/csi-volmgr: audit.log' "$root/tmp/purged" || fail "the log that stays is not told of: $(cat "$root/tmp/purged")"
for gone in /usr/bin/csi-volmgr /etc/csi-volmgr /etc/containers/containers.conf.d/csi-volmgr.conf; do
	[ ! -e "$root$gone" ] || fail "left after purging: $gone"
done
[ -z "$(mounts)" ] || fail "left mounted: $(mounts)"
echo "deb-test: installed, upgraded under mounted volumes, refused, removed and purged"
