package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/pkg/holders"
	"github.com/csi-volmgr/csi-volmgr/pkg/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/server/client"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/spf13/cobra"
)

// instead returns what to use in place of a verb or kind of kubectl; "" if there is nothing to say.
func instead(word string) string {
	const manifests = "change the manifest and apply it: csi-volmgr apply -f FILE"
	return map[string]string{
		"annotate": manifests, "create": manifests, "edit": manifests, "label": manifests, "patch": manifests,
		"replace": manifests, "set": manifests,
		"attach": noContainers, "cp": noContainers, "debug": noContainers, "exec": noContainers,
		"logs":   "the daemon's log is journalctl -u csi-volmgr, the calls for a pod are csi-volmgr trace pod NAME",
		"events": noEvents, "event": noEvents, "ev": noEvents,
		"cordon": "csi-volmgr drain", "uncordon": "csi-volmgr undrain",
		"kustomize": kustomized,
		"rollout":   "csi-volmgr wait pod NAME --for=mounted",
	}[word]
}

const (
	noContainers = "csi-volmgr runs no containers; csi-volmgr get mounts --pod NAME says where a pod's volumes are on " +
		"this host"
	noEvents = "csi-volmgr keeps no events; csi-volmgr get problems, explain and trace say what happens, watch what " +
		"changes"
	kustomized = "csi-volmgr builds no kustomizations: kubectl kustomize DIRECTORY | csi-volmgr apply -f -"
)

// noKustomize adds kubectl's flag -k, whose error says what to use instead.
func noKustomize(cmd *cobra.Command) {
	cmd.Flags().StringP("kustomize", "k", "", "as kubectl has it; "+kustomized)
	_ = cmd.Flags().MarkHidden("kustomize") // fails only for a flag that does not exist
	args := cmd.Args
	cmd.Args = func(cmd *cobra.Command, all []string) error {
		if cmd.Flags().Changed("kustomize") {
			return usagef("-k: %s", kustomized)
		}
		if args == nil {
			return nil
		}
		return args(cmd, all)
	}
}

// everything lists the kinds of "get all", in its order.
var everything = []string{"pods", "pvc", "pv", "volumes", "drivers"}

// getSeveral lists several kinds, one after another: "get pv,pvc", "get all".
func (p *program) getSeveral(ctx context.Context, words []string, o getOptions) error {
	all := slices.Equal(words, []string{"all"})
	if all {
		words = everything
	}
	if o.watch {
		return usagef("watch one kind at a time, not %s", strings.Join(words, " and "))
	}
	found := make([]string, len(words))
	for i, word := range words { // before anything is shown
		of := o
		var err error
		if found[i], err = of.parse([]string{word}); err != nil {
			return err
		}
	}
	items, shown := []json.RawMessage{}, false
	for _, kind := range found {
		of := o
		var out, notes bytes.Buffer
		one := *p
		if one.stdout = &out; all {
			one.stderr = &notes // says which kinds have no objects
		}
		if structured(o.output) {
			of.output = formJSON
		}
		if err := one.get(ctx, kind, of); err != nil {
			return err
		}
		if structured(o.output) {
			var list server.List[json.RawMessage]
			if err := json.Unmarshal(out.Bytes(), &list); err != nil {
				return err
			}
			items = append(items, list.Items...)
			continue
		}
		if out.Len() == 0 {
			continue
		}
		if shown {
			out = *bytes.NewBufferString("\n" + out.String())
		}
		shown = true
		if err := writeAll(p.stdout, out.String()); err != nil {
			return err
		}
	}
	switch {
	case structured(o.output):
		return p.document(server.List[json.RawMessage]{Items: items}, o.output)
	case all && !shown:
		return writeAll(p.stderr, "Nothing found.\n")
	}
	return nil
}

// several returns the kinds in a list of kinds; nil if args is no such list.
func several(args []string) ([]string, error) {
	if len(args) == 0 || args[0] != "all" && !strings.Contains(args[0], ",") || strings.Contains(args[0], "/") {
		return nil, nil
	}
	if len(args) > 1 {
		return nil, usagef("names need one kind, not %s", args[0])
	}
	return strings.Split(args[0], ","), nil
}

// volumeHolders is the holders of one volume of a pod.
type volumeHolders struct {
	Volume state.VolumeID `json:"volume"`
	holders.Report
}

// whoPod lists the holders of a pod's volumes.
func (p *program) whoPod(ctx context.Context, ns, name, output string) error {
	c := p.client()
	defer c.Close()
	pod, err := c.Pod(ctx, ns, name)
	if err != nil {
		return err
	}
	all := []volumeHolders{}
	for _, v := range pod.Volumes {
		if v.ID == "" {
			continue // not resolved, so nothing is mounted
		}
		r, err := c.Who(ctx, string(v.ID), "")
		if err != nil && !errors.Is(err, server.ErrNotFound) {
			return err
		}
		all = append(all, volumeHolders{v.ID, r})
	}
	if structured(output) {
		return p.document(server.List[volumeHolders]{Items: all}, output)
	}
	if len(all) == 0 {
		return writeAll(p.stderr, fmt.Sprintf("Pod %s/%s has no volume here.\n", ns, name))
	}
	var b strings.Builder
	for i, h := range all {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "volume       %s\n%s", h.Volume, whoText(h.Report))
	}
	return writeAll(p.stdout, b.String())
}

// allNamed returns the arguments of delete with --all in place of names: all pods, claims,
// snapshots or group snapshots of the namespace.
func (p *program) allNamed(ctx context.Context, c *client.Client, ns string, args []string) ([]string, error) {
	if len(args) != 1 || strings.Contains(args[0], "/") {
		return nil, usagef("--all: expected pod, pvc, snapshot or groupsnapshot, and no name")
	}
	kind := kindOf(args[0])
	if !slices.Contains([]string{"pods", "pvc", "snapshots", "groupsnapshots"}, kind) {
		return nil, usagef("unknown kind %q: expected one of pods, pvc, snapshots, groupsnapshots", args[0])
	}
	names, err := namesOf(ctx, c, kind, ns)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	return append([]string{args[0]}, names...), nil
}
