package main

import (
	"context"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/pkg/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/server/client"
	"k8s.io/apimachinery/pkg/labels"
)

// objectKinds are the words of get for kinds that are listed by name alone.
var objectKinds = []string{
	"storageclasses", "csidrivers", "configmaps", "secrets", "volumeattachments", "volumesnapshotclasses",
	"volumesnapshotcontents", "volumegroupsnapshotclasses", "volumegroupsnapshotcontents",
	"volumeattributesclasses",
}

// labelledKinds are the kinds of objects behind the words of get that -l selects from.
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

// isObject reports whether get shows no more of the kind than its objects' names.
func isObject(word string) bool {
	for _, kind := range objectKinds {
		if kind == word {
			return true
		}
	}
	return false
}

// checkObjects says what of the options does not go with a kind of objects, or -l
// not with a kind.
func (o *getOptions) checkObjects(kind string) error {
	if o.watch && isObject(kind) {
		return usagef("%s are listed as they are now; watch pods, volumes, drivers, pv, pvc, snapshots or groupsnapshots",
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
		return usagef("-l selects from all: leave out the names")
	case o.watch:
		return usagef("-l selects from what there is now: leave out --watch")
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

// objectKey is "namespace/name", or the name of what has no namespace.
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
