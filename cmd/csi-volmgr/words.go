package main

import (
	"errors"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/manifest"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const (
	noContainers = "csi-volmgr runs no containers; csi-volmgr get mounts --pod NAME says where a pod's volumes are on " +
		"this host"
	noEvents = "csi-volmgr keeps no events; csi-volmgr get problems, explain and trace say what happens, watch what " +
		"changes"
	manifests = "change the manifest and apply it: csi-volmgr apply -f FILE"
	larger    = "apply the claim with a larger size: csi-volmgr apply -f FILE"
	removed   = "csi-volmgr delete pod NAME; with its data a claim goes by: csi-volmgr delete pvc NAME"
	byApply   = "a pod's volumes are mounted while it is applied: csi-volmgr apply -f FILE, and csi-volmgr delete pod NAME"
	service   = "the daemon is a service: systemctl status csi-volmgr; what it mounts: csi-volmgr get all"
	claimed   = "a volume is made for a claim that is applied: csi-volmgr apply -f FILE"
)

// instead returns what serves in place of a verb or kind of kubectl, docker, nomad or systemctl; "" if there is nothing
// to say. A verb below another one is named with it: "volume create".
func instead(word string) string {
	return map[string]string{
		"annotate": manifests, "create": manifests, "edit": manifests, "label": manifests, "patch": manifests,
		"replace": manifests, "set": manifests,
		"attach": noContainers, "cp": noContainers, "debug": noContainers, "exec": noContainers,
		"logs":   "the daemon's log is journalctl -u csi-volmgr, the calls for a pod are csi-volmgr trace pod NAME",
		"events": noEvents, "event": noEvents, "ev": noEvents,
		"cordon": "csi-volmgr drain", "uncordon": "csi-volmgr undrain",
		"node drain": "csi-volmgr drain",
		"kustomize":  kustomized,
		"rollout":    "csi-volmgr wait pod NAME --for=mounted",
		"ps":         "csi-volmgr get pods", "ls": "csi-volmgr get all", "list": "csi-volmgr get all",
		"rm": removed, "remove": removed, "inspect": "csi-volmgr describe pod NAME", "info": "csi-volmgr version",
		"status": service, "start": service, "stop": service, "restart": service, "enable": service,
		"stats": "csi-volmgr get stats", "df": "csi-volmgr get stats", "problems": "csi-volmgr get problems",
		"mount": byApply, "umount": byApply, "unmount": byApply, "resize": larger, "expand": larger,
		"api-resources": "csi-volmgr get --help lists the kinds", "config": "csi-volmgr run --help lists the settings",
		"prune": "csi-volmgr gc --dry-run shows what no record explains",

		"volume create": claimed, "volume inspect": "csi-volmgr describe volume NAME", "volume ls": "csi-volmgr volume list",
		"volume status": "csi-volmgr volume list", "volume rm": "csi-volmgr volume remove NAME",
		"volume delete": "csi-volmgr volume remove NAME", "volume prune": "csi-volmgr gc --dry-run",
		"snapshot list": "csi-volmgr get snapshots", "snapshot ls": "csi-volmgr get snapshots",
		"snapshot delete": "csi-volmgr delete snapshot NAME", "snapshot rm": "csi-volmgr delete snapshot NAME",
		"driver list": "csi-volmgr get drivers", "driver ls": "csi-volmgr get drivers",
		"driver status": "csi-volmgr get drivers",
	}[word]
}

// wrongFlag explains a flag that does not exist: by what serves instead of its verb, or by the flag that was meant.
func wrongFlag(cmd *cobra.Command, err error) error {
	if words := cmd.Flags().Args(); len(words) > 0 && cmd.HasSubCommands() {
		if unknown := knownCommand(cmd, words); unknown != nil {
			return unknown // create -f: the flag would be one of a verb that there is not
		}
	}
	missing, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return usageError{err}
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if near := manifest.Nearest(missing.GetSpecifiedName(), names); len(near) > 0 {
		return usagef("%w; is it --%s?", err, near[0])
	}
	return usageError{err}
}
