#!/bin/sh
# Runs a container of podman with the volumes that a pod's container asks for:
#
#	run.sh POD CONTAINER [options of podman run] IMAGE [COMMAND...]
#
# The pod is applied before, and deleted when its containers have ended:
# csi-volmgr keeps its volumes mounted in between, whatever is restarted.
set -eu
pod=$1 container=$2
shift 2
volmgr() { "${CSI_VOLMGR:-csi-volmgr}" "$@"; }

# Not what was mounted once, but what is there now.
volmgr wait pod "$pod" --for=verified --timeout=2m

options() { # template: an option of podman a line
	volmgr get mounts --pod "$pod" --container "$container" --runtime-mount-options -o "jsonpath=$1"
}
newline='
'
IFS=$newline
# shellcheck disable=SC2046 # a line is an option
exec podman run \
	$(options '{range .items[?(@.propagation)]}--mount=type=bind,src={.hostPath},dst={.containerPath},ro={.readOnly},bind-propagation={.propagation}{range .mountOptions[*]},{@}{end}{"\n"}{end}') \
	$(options '{range .items[?(@.device)]}--device={.hostPath}:{.containerPath}:{.permissions}{"\n"}{end}') \
	"$@"
