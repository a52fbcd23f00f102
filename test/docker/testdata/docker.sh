# The story of docs/docker.md.
set -eux
docker volume create -d csi -o size=1Gi db
docker run --rm -v db:/data busybox sh -c 'echo hello > /data/greeting'
docker run --rm -v db:/data busybox cat /data/greeting
docker volume inspect db
docker volume rm db
