# Prepares container engines in a bare Debian without systemd: sourced by what types pages there.
# dockerd and podman have no control of networks, and the image busybox.
image=$(mktemp -d)
mkdir -p "$image"/bin "$image"/tmp
cp /bin/busybox "$image/bin"
for applet in sh cat echo ls tar; do ln -s busybox "$image/bin/$applet"; done
printf '%s\n' '[containers]' 'netns = "none"' \
	'default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]' '[engine]' 'runtime = "runc"' 'lock_type = "file"' \
	'cgroup_manager = "cgroupfs"' 'events_logger = "file"' >/etc/containers/containers.conf
printf '%s\n' '[storage]' 'driver = "vfs"' 'runroot = "/run/containers"' 'graphroot = "/var/lib/containers"' >/etc/containers/storage.conf
printf '%s\n' '[registries.search]' 'registries = ["docker.io"]' >/etc/containers/registries.conf
tar -C "$image" -c . | podman import - docker.io/library/busybox >/dev/null
setsid dockerd --bridge=none --iptables=false --ip-forward=false --ip-masq=false --userland-proxy=false --storage-driver=vfs \
	>/run/dockerd.log 2>&1 </dev/null &
for _ in $(seq 300); do ! docker version >/dev/null 2>&1 || break; sleep 0.1; done
tar -C "$image" -c . | docker import - busybox >/dev/null
rm -r "$image"
