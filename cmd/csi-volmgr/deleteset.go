package main

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/client"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
)

// isSet reports whether the objects to delete are not named one by one.
func (d deletion) isSet(args []string) bool {
	return d.all || d.selector != "" || slices.ContainsFunc(args, isPattern)
}

// isPattern reports whether a word is a pattern: no name has these characters.
func isPattern(word string) bool { return strings.ContainsAny(word, "*?[") }

// setKinds lists the kinds that delete takes in sets.
var setKinds = []string{"pods", "pvc", "snapshots", "groupsnapshots"}

// deleteSet returns the arguments of delete with names in place of --all, labels and patterns; none if there is nothing
// to delete. Claims and snapshots have data: without --yes it prints what would become of each, and fails.
func (p *program) deleteSet(ctx context.Context, c *client.Client, d deletion, args []string) ([]string, error) {
	kind, patterns, err := d.kindOfSet(args)
	if err != nil {
		return nil, err
	}
	names, err := namesOf(ctx, c, kind, d.Namespace)
	if err != nil {
		return nil, err
	}
	var labelled map[string]bool
	if d.selector != "" {
		if labelled, err = selected(ctx, c, kind, getOptions{selector: d.selector}); err != nil {
			return nil, err
		}
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !d.takes(name, patterns, labelled) })
	for _, name := range patterns {
		if !isPattern(name) && !slices.Contains(names, name) {
			names = append(names, name) // the daemon says that it is not there
		}
	}
	slices.Sort(names)
	one, out := strings.TrimSuffix(kind, "s"), append([]string{kind}, names...)
	switch {
	case len(names) == 0:
		return nil, writeAll(p.stderr, fmt.Sprintf("No %s found in namespace %s.\n", one, d.Namespace))
	case kind == "pods" || d.yes:
		return out, nil
	}
	fates, err := d.fates(ctx, c, kind)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		line := fmt.Sprintf("would delete %s/%s: %s\n", one, name, cmp.Or(plain(fates[name]), "there is none"))
		if err := writeAll(p.stdout, line); err != nil {
			return nil, err
		}
	}
	return nil, usagef("nothing is deleted without --yes: %s --yes", commandLine(p.args))
}

// kindOfSet returns the one kind of a set, and the names and patterns that it has.
func (d deletion) kindOfSet(args []string) (kind string, patterns []string, err error) {
	ts, err := targets(args, setKinds...)
	if err != nil {
		return "", nil, err
	}
	kind = ts[0].kind
	for _, t := range ts {
		switch {
		case t.kind != kind:
			return "", nil, usagef("patterns need one kind, not %s and %s", kind, t.kind)
		case t.name == "":
			continue
		case d.all || d.selector != "":
			return "", nil, usagef("--all: expected pod, pvc, snapshot or groupsnapshot, and no name; the same holds for -l")
		}
		if _, err := path.Match(t.name, ""); err != nil {
			return "", nil, usagef("%s %s: expected a pattern such as 'db-*'", kind, t.name)
		}
		patterns = append(patterns, t.name)
	}
	if d.all && d.selector != "" {
		return "", nil, usagef("expected either --all or -l")
	}
	return kind, patterns, nil
}

// takes reports whether the set has the object of a name.
func (d deletion) takes(name string, patterns []string, labelled map[string]bool) bool {
	if d.all || labelled[d.Namespace+"/"+name] {
		return true
	}
	return slices.ContainsFunc(patterns, func(p string) bool {
		is, _ := path.Match(p, name) // the patterns are checked
		return is
	})
}

// fates says, by name, what becomes of the data of the namespace's objects of a kind.
func (d deletion) fates(ctx context.Context, c *client.Client, kind string) (map[string]string, error) {
	all := map[string]string{}
	ofSnapshot := func(namespace, name, policy string) {
		if namespace == d.Namespace {
			if all[name] = "with its data"; policy == "Retain" && !d.Data {
				all[name] = "its data stays (deletionPolicy Retain)"
			}
		}
	}
	switch kind {
	case "pvc":
		claims, err := c.Claims(ctx)
		for _, s := range claims {
			if s.Namespace == d.Namespace {
				all[s.Name] = d.fate(s)
			}
		}
		return all, err
	case "snapshots":
		snapshots, err := c.Snapshots(ctx)
		for _, s := range snapshots {
			ofSnapshot(s.Namespace, s.Name, s.DeletionPolicy)
		}
		return all, err
	}
	groups, err := c.GroupSnapshots(ctx)
	for _, g := range groups {
		ofSnapshot(g.Namespace, g.Name, g.DeletionPolicy)
	}
	return all, err
}

// fate says what becomes of the data of a claim. A claim has a driver here only if csi-volmgr made its volume.
func (d deletion) fate(s server.ClaimStatus) string {
	volume := fmt.Sprintf("its volume %s of %s", s.Volume, size(s.CapacityBytes))
	switch {
	case s.Volume == "":
		return "it has no volume"
	case s.Driver == "":
		return volume + " stays, with its data: csi-volmgr did not make it"
	case s.ReclaimPolicy == "Retain" && !d.Data:
		return volume + " stays, with its data (reclaimPolicy Retain)"
	}
	return volume + " goes with ITS DATA"
}
