package harness

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
)

// glance is the pause between looks at things that have no events.
const glance = 20 * time.Millisecond

// A watcher is a Watch method of the API's client.
type watcher[T any] func(ctx context.Context, each func(server.Event[T]) error) error

// Until waits until ok returns true for the items that watch reports, keyed by name.
func Until[T any](n *Node, what string, watch watcher[T], ok func(map[string]T) bool) {
	n.T.Helper()
	ctx, cancel := context.WithTimeoutCause(n.T.Context(), Patience, fmt.Errorf("%s passed", Patience))
	defer cancel()
	all, listed, done := map[string]T{}, false, false
	err := watch(ctx, func(e server.Event[T]) error {
		switch e.Type {
		case "set":
			all[nameOf(e.Item)] = e.Item
		case "gone":
			delete(all, nameOf(e.Item))
		case "listed":
			listed = true
		}
		if listed && !done && ok(all) {
			done = true
			cancel()
		}
		return nil
	})
	if !done {
		n.T.Fatalf("wait for %s: %v, %v; there is %+v", what, context.Cause(ctx), err, all)
	}
}

// nameOf returns the name that identifies an item in its list.
func nameOf(item any) string {
	switch i := item.(type) {
	case server.PodStatus:
		return string(i.Pod.UID)
	case server.VolumeStatus:
		return string(i.Volume.ID)
	case server.DriverStatus:
		return string(i.Name)
	case server.ClaimStatus:
		return i.Namespace + "/" + i.Name
	case server.SnapshotStatus:
		return i.Namespace + "/" + i.Name
	case server.PVStatus:
		return i.Name
	}
	panic(fmt.Sprintf("nameOf(%T)", item))
}

// Eventually calls ok until it returns true. It is for things without events: files, tables
// of the kernel, explanations.
func (n *Node) Eventually(what string, ok func() bool) {
	n.T.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(n.T.Context()), Patience) // also in a cleanup
	defer cancel()
	for !ok() {
		select {
		case <-ctx.Done():
			n.T.Fatalf("wait for %s: %v", what, context.Cause(ctx))
		case <-time.After(glance):
		}
	}
}

// Mounted waits until pods have their volumes.
func (n *Node) Mounted(pods ...string) {
	n.T.Helper()
	n.waitFor("mounted", pods)
}

// Unmounted waits until no volume of the pods is mounted.
func (n *Node) Unmounted(pods ...string) {
	n.T.Helper()
	n.waitFor("unmounted", pods)
}

func (n *Node) waitFor(what string, pods []string) {
	n.T.Helper()
	for _, pod := range pods {
		if r := n.CLI("", "wait", "pod", pod, "--for="+what, "--timeout", Patience.String()); r.Code != 0 {
			n.T.Fatalf("pod %s is not %s: %s\n%s", pod, what, r.Stderr, n.CLI("", "explain", "pod", pod).Stdout)
		}
	}
}

// Remove withdraws pods.
func (n *Node) Remove(pods ...string) {
	n.T.Helper()
	for _, pod := range pods {
		n.Do("", "delete", "pod", pod)
	}
}

// DeletePods withdraws pods and waits until none of their volumes is mounted.
func (n *Node) DeletePods(pods ...string) {
	n.T.Helper()
	n.Remove(pods...)
	n.Unmounted(pods...)
}

// DeleteClaims deletes claims with their data, once no volume is in use.
func (n *Node) DeleteClaims(claims ...string) {
	n.T.Helper()
	n.NoVolumes()
	n.Do("", append([]string{"delete", "pvc"}, claims...)...)
	Until(n, "the claims' volumes to be deleted", n.API.WatchPersistentVolumes, func(pvs map[string]server.PVStatus) bool {
		for _, pv := range pvs {
			if slices.ContainsFunc(claims, func(c string) bool { return pv.Claim == "default/"+c }) {
				return false
			}
		}
		return true
	})
	Until(n, "the claims to be gone", n.API.WatchClaims, func(have map[string]server.ClaimStatus) bool {
		for _, c := range have {
			if slices.Contains(claims, c.Name) {
				return false
			}
		}
		return true
	})
}

// NoVolumes waits until there is no volume on the node.
func (n *Node) NoVolumes() {
	n.T.Helper()
	Until(n, "no volume to be left", n.API.WatchVolumes, func(all map[string]server.VolumeStatus) bool { return len(all) == 0 })
}

// NoUnwanted waits until each volume on the node is wanted by a pod: the rest is removed and detached.
func (n *Node) NoUnwanted() {
	n.T.Helper()
	Until(n, "what no pod wants to be gone", n.API.WatchVolumes, func(all map[string]server.VolumeStatus) bool {
		for _, v := range all {
			if len(v.Wanted) == 0 {
				return false
			}
		}
		return true
	})
}

// DriverUp waits until the daemon knows the driver.
func (n *Node) DriverUp(name string) {
	n.T.Helper()
	Until(n, "driver "+name+" to be up", n.API.WatchDrivers, func(all map[string]server.DriverStatus) bool { return all[name].Up })
}
