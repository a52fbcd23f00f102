package main

import (
	"context"
	"strings"

	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/client"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
)

func groupColumns() []column[server.GroupSnapshotStatus] {
	return []column[server.GroupSnapshotStatus]{
		{head: "NAMESPACE", value: func(g server.GroupSnapshotStatus, _ view) string { return g.Namespace }},
		{head: "NAME", value: func(g server.GroupSnapshotStatus, _ view) string { return g.Name }},
		{head: "STATUS", state: true, value: func(g server.GroupSnapshotStatus, _ view) string { return g.Phase }},
		{head: "READY", value: func(g server.GroupSnapshotStatus, _ view) string { return yesNo(g.Ready) }},
		{head: "CLAIMS", value: func(g server.GroupSnapshotStatus, _ view) string {
			return orNone(strings.Join(g.Claims, ","))
		}},
		{head: "CLASS", value: func(g server.GroupSnapshotStatus, _ view) string { return orNone(g.Class) }},
		{head: "AGE", value: func(g server.GroupSnapshotStatus, v view) string {
			if g.Created.IsZero() {
				return none
			}
			return v.age(g.Created)
		}},
		{head: "WAITING FOR", value: func(g server.GroupSnapshotStatus, v view) string {
			if g.Retry.Attempts > 0 && g.Retry.Call != "" {
				return v.reason(g.Retry.Failure())
			}
			return v.reason(g.Reason)
		}},
		{head: "DRIVER", wide: true, value: func(g server.GroupSnapshotStatus, _ view) string {
			return orNone(string(g.Driver))
		}},
		{head: "HANDLE", wide: true, value: func(g server.GroupSnapshotStatus, _ view) string {
			return orNone(plain(g.Handle))
		}},
		{head: "POLICY", wide: true, value: func(g server.GroupSnapshotStatus, _ view) string {
			return orNone(g.DeletionPolicy)
		}},
		{head: "CONSISTENCY", wide: true, value: func(g server.GroupSnapshotStatus, _ view) string {
			return orNone(g.Consistency)
		}},
	}
}

func groupResource(c *client.Client) resource[server.GroupSnapshotStatus] {
	return resource[server.GroupSnapshotStatus]{
		kind: "groupsnapshot", columns: groupColumns(), list: c.GroupSnapshots, watch: c.WatchGroupSnapshots,
		namespaced: true, key: func(g server.GroupSnapshotStatus) string { return g.Namespace + "/" + g.Name },
	}
}

// newGroupSnapshot returns a snapshot of all claims with the labels of o.
func newGroupSnapshot(c *client.Client, meta metav1.ObjectMeta, o snapshotOptions) (snapshotToMake, error) {
	selector, err := metav1.ParseToLabelSelector(o.selector)
	if err != nil {
		return snapshotToMake{}, usagef("-l %s: %v", o.selector, err)
	}
	g := &groupv1.VolumeGroupSnapshot{
		TypeMeta:   metav1.TypeMeta{APIVersion: resolve.GroupSnapshotGroup + "/v1", Kind: resolve.KindGroupSnapshot},
		ObjectMeta: meta,
		Spec:       groupv1.VolumeGroupSnapshotSpec{Source: groupv1.VolumeGroupSnapshotSource{Selector: selector}},
	}
	if o.class != "" {
		g.Spec.VolumeGroupSnapshotClassName = &o.class
	}
	return snapshotToMake{
		object: g, what: "groupsnapshot",
		exists: func(ctx context.Context) (bool, error) {
			all, err := c.GroupSnapshots(ctx)
			for _, one := range all {
				if one.Namespace == meta.Namespace && one.Name == meta.Name {
					return true, nil
				}
			}
			return false, err
		},
		watch: func(ctx context.Context, each func(snapshotProgress) error) error {
			return c.WatchGroupSnapshots(ctx, func(e server.Event[server.GroupSnapshotStatus]) error {
				s := e.Item
				if s.Namespace != meta.Namespace || s.Name != meta.Name {
					return nil
				}
				return each(snapshotProgress{cut: s.Content != "", ready: s.Ready, refused: s.Refused, reason: s.Reason})
			})
		},
	}, nil
}
