# The backup of docs/docker.md, of a volume db that a container has.
set -eux
csi-volmgr snapshot create pvc/db --name=monday --freeze=10s
csi-volmgr snapshot restore monday pvc/db-of-monday
docker volume create -d csi -o claim=db-of-monday -o subdir=_data monday
docker run --rm -v monday:/data busybox tar -C /data -c . > monday.tar
docker volume rm monday
csi-volmgr delete pvc db-of-monday
csi-volmgr delete snapshot monday
