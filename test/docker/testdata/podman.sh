# The story of docs/podman.md.
set -eux
podman volume create --driver csi -o size=1Gi db
podman run --rm -v db:/data busybox sh -c 'echo hello > /data/greeting'
podman run --rm -v db:/data busybox cat /data/greeting
podman volume inspect db
podman volume rm db
