#!/bin/bash
# The part of test.sh that runs in the bare Debian: the packages are in /debs, the tree in /tree.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive
mkdir -p /run/systemd/system
cp /tree/hack/deb/systemctl /usr/bin/systemctl
for dir in /tmp /var/lib/kubelet; do
	mkdir -p "$dir"
	mount -t tmpfs deb-test "$dir"
	mount --make-shared "$dir"
done

fail() { echo "deb-test: $*" >&2; tail -n 30 /run/daemon.log >&2; exit 1; }
package() { ls /debs/csi-volmgr_"$1"_*.deb; }
mounts() { awk '$5 ~ "^/var/lib/kubelet/pods/" {print $1, $5}' /proc/self/mountinfo | sort; }
config=/etc/csi-volmgr/config.yaml class=/etc/csi-volmgr/manifests/standard.yaml
plain() { cmp -s "$config" /tree/deploy/config/config.yaml && [ ! -e "$class" ]; } # nothing is turned on
purge() { dpkg -P csi-volmgr 2>"$1" && rm -rf /etc/csi-volmgr /var/lib/csi-volmgr; }

echo "deb-test: install"
! command -v mkfs.xfs || fail "this system is not bare"
dpkg -i "$(package 1)"
grep -q 'systemctl start csi-volmgr.service csi-volmgr-drain.service' /run/systemctl.log || fail "the services were not started"
csi-volmgr version | grep -q '^daemon: .*v1' || fail "the daemon does not answer"
for file in /usr/lib/systemd/system/csi-volmgr-{plugin.socket,gc.service,gc.timer} /etc/containers/containers.conf.d/csi-volmgr.conf \
	/usr/share/csi-volmgr/examples/{compose/docker-compose.yml,quadlet/db.container,systemd/web.service} "$class"; do
	[ -e "$file" ] || fail "not installed: $file"
done
[ "$(cat /var/lib/dpkg/info/csi-volmgr.conffiles)" = /etc/containers/containers.conf.d/csi-volmgr.conf ] ||
	fail "an upgrade would replace the operator's containers.conf.d/csi-volmgr.conf, or the configuration"

echo "deb-test: the first commands of the pages"
# shellcheck source=hack/deb/engines.sh
. /tree/hack/deb/engines.sh
for page in docker podman fstab systemd; do
	# The blocks up to the first one after the installation.
	awk '/^```sh$/ {in_block = ++n <= 2; next} /^```/ {in_block = 0} in_block && !/^dpkg -i/' "/tree/docs/$page.md" >/tmp/first
	sed 's/^/$ /' /tmp/first
	(cd /tmp && bash -euo pipefail /tmp/first) || fail "the first commands of docs/$page.md"
done
grep -q 'made=ext4' /run/daemon.log || fail "the log does not say that ext4 was made"
curl -s --unix-socket /run/docker/plugins/csi.sock -X POST http://csi/Plugin.Activate | grep -q VolumeDriver ||
	fail "the volume plugin does not answer"
for volume in $(csi-volmgr volume list -o jsonpath='{.items[*].name}'); do csi-volmgr volume remove "$volume"; done
for claim in $(csi-volmgr get pvc -o jsonpath='{.items[*].name}'); do csi-volmgr delete pvc "$claim" --data; done

echo "deb-test: pods"
cp -r /tree/examples /tmp/examples
sed -i 's/fstype: xfs/fstype: ext4/' /tmp/examples/*.yaml # this system has no mkfs.xfs
csi-volmgr apply -f /tmp/examples
csi-volmgr wait pod web --for=verified --timeout=2m
before=$(mounts)
[ -n "$before" ] || fail "no mounts to be seen"

echo "deb-test: upgrade with volumes mounted"
echo '# ours' >>"$config"
dpkg -i "$(package 2)"
csi-volmgr version | grep -q '^daemon: .*v2' || fail "the daemon is not the new one"
csi-volmgr wait pod web --for=verified --timeout=2m
[ "$(mounts)" = "$before" ] || fail "mounts have changed: $(diff <(echo "$before") <(mounts))"
grep -q '# ours' "$config" || fail "the configuration was replaced"
! grep -q 'restart csi-volmgr-drain' /run/systemctl.log || fail "the unit that empties the node was restarted"

echo "deb-test: removing is refused while volumes are here"
! dpkg -r csi-volmgr >/tmp/refused 2>&1 || fail "it was removed"
grep -q 'not removed while volumes are here' /tmp/refused || fail "no reason: $(cat /tmp/refused)"
csi-volmgr wait pod web --for=verified --timeout=2m
[ "$(mounts)" = "$before" ] || fail "mounts have changed"

echo "deb-test: remove, install again, remove, purge"
csi-volmgr delete pod web more
csi-volmgr wait pod web --for=unmounted --timeout=2m
csi-volmgr wait pod more --for=unmounted --timeout=2m
csi-volmgr delete pvc data disk
for _ in $(seq 600); do csi-volmgr get pv -o jsonpath='{.items[*].name}' | grep -q pvc- || break; sleep 0.1; done # no user needs the examples' data
dpkg -r csi-volmgr
rm "$class"
kept=$(cat "$config")
dpkg -i "$(package 2)"
[ "$(cat "$config")" = "$kept" ] && [ ! -e "$class" ] || fail "installing again has changed the configuration that removing left"
dpkg -r csi-volmgr
[ -e /var/lib/csi-volmgr/state.db ] || fail "removing took the state, which is for purging"
echo '{}' >/etc/csi-volmgr/manifests/theirs.yaml
dpkg -P csi-volmgr 2>/tmp/purged
[ "$(ls -A /var/lib/csi-volmgr)" = audit.log ] || fail "left after purging: $(ls -A /var/lib/csi-volmgr), and not the log of what operators had done alone"
grep -q 'left in /var/lib/csi-volmgr: audit.log' /tmp/purged || fail "the log that stays is not told of: $(cat /tmp/purged)"
grep -q 'left in /etc/csi-volmgr/manifests: theirs.yaml' /tmp/purged || fail "the manifest that stays is not told of: $(cat /tmp/purged)"
for gone in /usr/bin/csi-volmgr "$config" "$class" /etc/containers/containers.conf.d/csi-volmgr.conf; do
	[ ! -e "$gone" ] || fail "left after purging: $gone"
done
[ -z "$(mounts)" ] || fail "left mounted: $(mounts)"
rm -r /etc/csi-volmgr /var/lib/csi-volmgr

for changed in '' 'log-level: debug'; do
	echo "deb-test: upgrade from a package that had its configuration as a conffile; the operator's line: '$changed'"
	dpkg -i /debs/csi-volmgr_0.9_*.deb
	plain || fail "the older package turns something on"
	[ -z "$changed" ] || echo "$changed" >>"$config"
	kept=$(cat "$config")
	dpkg -i "$(package 2)"
	[ "$(cat "$config")" = "$kept" ] && [ ! -e "$class" ] || fail "the upgrade has changed the configuration: $(cat "$config")"
	csi-volmgr version | grep -q '^daemon: .*v2' || fail "the daemon is not the new one"
	if [ -n "$changed" ]; then
		echo "deb-test: a create without its driver says what to do, and that helps"
		mkdir /srv/more
		csi-volmgr apply -f /usr/share/csi-volmgr/standard.yaml
		! mount -t csi -o size=16Mi default/more /srv/more 2>/tmp/refused || fail "mounted without a driver"
		grep -q 'driver local.csi-volmgr.dev is not registered; no volume was made' /tmp/refused || fail "$(cat /tmp/refused)"
		[ -z "$(csi-volmgr volume list -o jsonpath='{.items[*].name}')" ] || fail "a volume is left"
		next=$(sed -n 's/.*put \(.*\) into .*configuration (\(.*\)), then: \(.*\)/echo "\1" >>\2; \3/p' /tmp/refused)
		echo "\$ $next"
		eval "${next:?no next command in: $(cat /tmp/refused)}"
		mount -t csi -o size=16Mi default/more /srv/more
		umount /srv/more
		csi-volmgr volume remove default/more
		csi-volmgr delete pvc more --data
	fi
	dpkg -r csi-volmgr
	purge /tmp/purged
done

echo "deb-test: install beside an operator's files"
beside() { # WHAT FILE TEXT CONFIGURATION: what the configuration is after an installation
	mkdir -p "$(dirname "$2")"
	echo "$3" >"$2"
	dpkg -i "$(package 1)"
	[ "$(cat "$2")" = "$3" ] || fail "$1: it was changed"
	[ ! -e "$class" ] || [ "$2" = "$class" ] || fail "$1: there is a class"
	! grep -q '^local-driver' "$config" || fail "$1: the local driver is on"
	dpkg -r csi-volmgr
	rm "$2"
	purge /tmp/purged
}
beside "a configuration of a node in a cluster" "$config" 'log-level: warn # and a kubeconfig'
beside "a manifest" "$class" '{}'
beside "a unit with a kubeconfig" /etc/systemd/system/csi-volmgr.service.d/cluster.conf '# run --kubeconfig=/etc/kubeconfig'
beside "a kubelet" /etc/kubernetes/kubelet.conf '{}'
echo "deb-test: installed, upgraded under mounted volumes, refused, removed and purged"
