package main

import (
	"context"
	"slices"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/client"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"k8s.io/apimachinery/pkg/labels"
)

// objectKinds lists the words of get for kinds that are listed by name alone.
var objectKinds = []string{
	"storageclasses", "csidrivers", "configmaps", "secrets", "volumeattachments", "volumesnapshotclasses",
	"volumesnapshotcontents", "volumegroupsnapshotclasses", "volumegroupsnapshotcontents",
	"volumeattributesclasses",
}

// labelledKinds returns the kind of objects for a word of get that -l can select from; "" if it cannot.
func labelledKinds(word string) string {
	return map[string]string{
		"pods": resolve.KindPod, "pvc": resolve.KindClaim, "pv": resolve.KindVolume,
		"storageclasses": resolve.KindClass, "csidrivers": resolve.KindCSIDriver, "configmaps": resolve.KindConfigMap,
		"secrets": resolve.KindSecret, "volumeattachments": resolve.KindVolumeAttachment,
		"groupsnapshots": resolve.KindGroupSnapshot, "volumegroupsnapshotclasses": resolve.KindGroupSnapshotClass,
		"volumegroupsnapshotcontents": resolve.KindGroupSnapshotContent,
		"snapshots":                   resolve.KindSnapshot, "volumesnapshotclasses": resolve.KindSnapshotClass,
		"volumesnapshotcontents": resolve.KindSnapshotContent, "volumeattributesclasses": resolve.KindAttributesClass,
	}[word]
}

// isObject reports whether get lists only the names of the kind's objects.
func isObject(word string) bool { return slices.Contains(objectKinds, word) }

// checkObjects refuses options that do not go with the kind.
func (o *getOptions) checkObjects(kind string) error {
	if o.watch && isObject(kind) {
		return usagef("%s cannot be watched: watch pods, volumes, drivers, pv, pvc, snapshots or groupsnapshots",
			kind)
	}
	if o.selector == "" {
		return nil
	}
	switch {
	case labelledKinds(kind) == "":
		return usagef("-l: %s have no labels; pods, pvc, pv, snapshots, groupsnapshots, %s may have", kind,
			strings.Join(objectKinds, ", "))
	case len(o.names) > 0:
		return usagef("-l and names exclude each other: leave out the names")
	case o.watch:
		return usagef("-l and --watch exclude each other: leave out --watch")
	}
	if _, err := labels.Parse(o.selector); err != nil {
		return usagef("-l %s: %v", o.selector, err)
	}
	return nil
}

// selected returns the keys of the objects that -l selects.
func selected(ctx context.Context, c *client.Client, kind string, o getOptions) (map[string]bool, error) {
	selector, err := labels.Parse(o.selector)
	if err != nil {
		return nil, usagef("-l %s: %v", o.selector, err)
	}
	all, err := c.Objects(ctx, labelledKinds(kind))
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for _, obj := range all {
		if selector.Matches(labels.Set(obj.Labels)) {
			found[objectKey(obj)] = true
		}
	}
	return found, nil
}

// objectKey returns "namespace/name", or the name if the object has no namespace.
func objectKey(o server.Object) string {
	if o.Namespace == "" {
		return o.Name
	}
	return o.Namespace + "/" + o.Name
}

func objectResource(c *client.Client, kind string) resource[server.Object] {
	one := strings.TrimSuffix(kind, "s")
	if strings.HasSuffix(kind, "classes") {
		one = strings.TrimSuffix(kind, "es")
	}
	return resource[server.Object]{
		kind: one, columns: objectColumns, key: objectKey,
		namespaced: kind == "configmaps" || kind == "secrets",
		list: func(ctx context.Context) ([]server.Object, error) {
			return c.Objects(ctx, labelledKinds(kind))
		},
	}
}

var objectColumns = []column[server.Object]{
	{head: "NAMESPACE", value: func(o server.Object, _ view) string { return orNone(o.Namespace) }},
	{head: "NAME", value: func(o server.Object, _ view) string { return plain(o.Name) }},
	{head: "ABOUT", value: func(o server.Object, _ view) string { return orNone(plain(o.About)) }},
	{head: "KEYS", wide: true, value: func(o server.Object, _ view) string {
		return orNone(plain(strings.Join(o.Keys, ",")))
	}},
	{head: "LABELS", wide: true, value: func(o server.Object, _ view) string {
		return orNone(plain(labels.Set(o.Labels).String()))
	}},
}
