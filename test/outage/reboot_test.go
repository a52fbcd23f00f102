package outage

import (
	"net/http"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-volmgr/csi-volmgr/test/fakeapi"
)

// take detaches the volume from a node that is down, as Kubernetes does for one that is
// out of service, and keeps it detached until free is called.
func (c *cluster) take(node, handle string) (free func()) {
	c.mu.Lock()
	a := c.nodes[node]
	pods := a.wants[handle]
	a.wants[handle] = 0
	delete(a.has, handle)
	c.writeAttached(a)
	c.server.Delete("volumeattachments", attachmentName(node, handle))
	c.mu.Unlock()
	return func() { c.want(node, handle, pods) }
}

// A node loses its power while the API server is away, and boots again, with its journal
// or without. Before the server is back, the driver makes and removes nothing. Then the
// pod that was deleted meanwhile gets nothing, the one whose volume was detached waits
// until it is attached again, and the third gets its volume at once. Each volume is in
// use before the driver makes anything of it.
//
// Faults: A227.
func TestARebootWhileTheServerIsAway(t *testing.T) {
	for name, keepsJournal := range map[string]bool{"with its journal": true, "with another disk": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { reboots(t, keepsJournal) })
		})
	}
}

func reboots(t *testing.T, keepsJournal bool) {
	c := newCluster(t)
	away := func(fakeapi.Request) *fakeapi.Answer { return &fakeapi.Answer{Err: syscall.ECONNREFUSED} }
	c.server.Fail(nodeAuthorizer)
	c.config("shared")
	n := c.newNode("n1")
	for _, pod := range []string{"goes", "given", "stays"} {
		c.bind("n1", pod, "shared")
	}
	n.start()
	until(t, "all pods are ready", time.Minute, func() bool { return n.ready() == 3 })
	c.server.Fail(away)
	c.server.EndWatches()
	advance(time.Minute)
	n.reboot(keepsJournal)
	free := c.take("n1", "given")
	c.server.Delete("pods", "default/goes")
	advance(10 * time.Minute)
	stages := n.count("Stage")
	if stages != 3 || n.count("Unstage")+n.count("Unpublish") != 0 || n.mounted() != 0 {
		t.Errorf("while the server is away: %d stages, %d removals, %d mounts; want the first 3, 0 and 0",
			stages, n.count("Unstage")+n.count("Unpublish"), n.mounted())
	}
	if used := c.inUse("n1"); len(used) != 3 {
		t.Errorf("in use while the server is away: %v", used)
	}
	if away := n.away(); away == nil || !away.Vital {
		t.Errorf("problem: %+v", away)
	}
	c.server.Fail(nodeAuthorizer)
	until(t, "the pod that stays has its volume", 3*time.Minute, func() bool { return n.mounted() == 2 })
	until(t, "what is in use is what is wanted", time.Minute, func() bool {
		used := c.inUse("n1")
		return len(used) == 2 && used["given"] && used["stays"]
	})
	c.want("n1", "goes", -1)
	advance(10 * time.Minute)
	if n.mounted() != 2 || n.count("Stage") != stages+1 {
		t.Errorf("%d mounts, %d stages more; the volume of the other pod is not attached", n.mounted(), n.count("Stage")-stages)
	}
	free()
	until(t, "the other pod has its volume", time.Minute, func() bool { return n.mounted() == 4 && n.ready() == 2 })
	// Only the driver knows that journaled mounts from before the reboot are gone (ADR
	// 2): the manager asks it once for each volume that it does not make again.
	// A driver may count the third pod's mount: it is unpublished once before it is made again.
	removals, before := 0, 0
	if keepsJournal {
		removals, before = 2, 1
	}
	if n.count("Unpublish") != removals+before || n.count("Unstage") != removals {
		t.Errorf("%d mounts and %d stages were taken away, want %d and %d", n.count("Unpublish"), n.count("Unstage"), removals+before, removals)
	}
}

// After a reboot the server answers only requests for pods and for the Node: no volume
// that the journal has leaves volumesInUse, and the driver makes nothing.
//
// Faults: A227.
func TestARebootAndAServerThatAnswersByHalves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.server.Fail(nodeAuthorizer)
		c.config("shared")
		n := c.newNode("n1")
		c.bind("n1", "p", "shared")
		n.start()
		until(t, "the pod is ready", time.Minute, func() bool { return n.ready() == 1 })
		c.server.Fail(func(r fakeapi.Request) *fakeapi.Answer {
			if r.Resource == "pods" || r.Resource == "nodes" {
				return nil
			}
			return &fakeapi.Answer{Code: http.StatusServiceUnavailable, RetryAfter: "5"}
		})
		for _, keepsJournal := range []bool{true, false} {
			n.reboot(keepsJournal)
			for range 10 * 60 {
				advance(time.Second)
				if used := c.inUse("n1"); keepsJournal && !used["p"] {
					t.Fatalf("in use: %v", used)
				}
			}
			if n.count("Stage") != 1 || n.count("Unstage") != 0 {
				t.Errorf("%d stages, %d unstages", n.count("Stage"), n.count("Unstage"))
			}
		}
		c.server.Fail(nodeAuthorizer)
		until(t, "the pod has its volume", 3*time.Minute, func() bool { return n.mounted() == 2 && n.ready() == 1 })
	})
}
