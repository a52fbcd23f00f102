package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/internal/host/holders"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/spf13/cobra"
)

const (
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

// getSeveral lists several kinds, one after another: "get pv,pvc", "get all", "get pod/web pvc/data".
func (p *program) getSeveral(ctx context.Context, groups [][]string, o getOptions, all bool) error {
	if o.watch {
		return usagef("watch one kind at a time")
	}
	type list struct {
		kind string
		getOptions
	}
	found := make([]list, len(groups))
	for i, group := range groups { // before anything is shown
		found[i].getOptions = o
		var err error
		if found[i].kind, err = found[i].parse(group); err != nil {
			return err
		}
	}
	items, shown := []json.RawMessage{}, false
	for _, of := range found {
		var out, notes bytes.Buffer
		one := *p
		if one.stdout = &out; all {
			one.stderr = &notes // says which kinds have no objects
		}
		if structured(o.output) {
			of.output = formJSON
		}
		if err := one.get(ctx, of.kind, of.getOptions); err != nil {
			return err
		}
		if structured(o.output) && len(of.names) == 1 {
			items = append(items, out.Bytes())
			continue
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

// several returns the arguments of each kind if args is a list of kinds, or names objects of several; else nil.
func several(args []string) (groups [][]string, err error) {
	if len(args) == 0 {
		return nil, nil
	}
	if strings.Contains(args[0], "/") {
		byKind := map[string]int{}
		for _, arg := range args {
			word, _, _ := strings.Cut(arg, "/")
			i, ok := byKind[kindOf(word)]
			if !ok {
				i = len(groups)
				byKind[kindOf(word)], groups = i, append(groups, nil)
			}
			groups[i] = append(groups[i], arg)
		}
		if len(groups) == 1 {
			return nil, nil
		}
		return groups, nil
	}
	words := strings.Split(args[0], ",")
	switch {
	case args[0] == "all":
		words = everything
	case len(words) == 1:
		return nil, nil
	}
	if len(args) > 1 {
		return nil, usagef("names need one kind, not %s", args[0])
	}
	for _, word := range words {
		groups = append(groups, []string{word})
	}
	return groups, nil
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
