package kube_test

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-volmgr/csi-volmgr/internal/cluster/kube"
	"github.com/csi-volmgr/csi-volmgr/internal/cluster/kubeclient"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/test/fakeapi"
)

// late delays each answer about a resource. The answer is of the time of the request.
type late struct {
	next     http.RoundTripper
	resource string
	takes    time.Duration
}

func (s late) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := s.next.RoundTrip(r)
	if strings.Contains(r.URL.Path, "/"+s.resource) {
		time.Sleep(s.takes)
	}
	return answer, err
}

// numbered returns the attachment number n of claim a's volume: its UID and its publish context are its own.
func numbered(n int) *storagev1.VolumeAttachment {
	va := attached("a")
	va.UID = types.UID(fmt.Sprint("attachment-", n))
	va.Status.AttachmentMetadata = map[string]string{"device": fmt.Sprint("/dev/", n)}
	return va
}

// controller detaches and attaches claim a's volume as the attach-detach controller does: it takes the volume from the
// Node's list, deletes the attachment, which takes a while, makes another one, and lists the volume again.
type controller struct {
	server *fakeapi.Server
	now    int // the number of the present attachment
}

func (c *controller) reattach(deleteTakes time.Duration) {
	c.server.Put(attaching())
	advance(deleteTakes)
	c.server.Delete("volumeattachments", attached("a").Name)
	c.now++
	c.server.Put(numbered(c.now))
	c.server.Put(attaching("a"))
}

// judge finds each moment in which the pods' volume might be staged with the context of an earlier attachment: the Node
// that the reporter was shown last lists the volume, and the wish is not held.
type judge struct {
	*testing.T
	server *fakeapi.Server

	mu     sync.Mutex
	lists  bool
	wanted func() map[state.PodUID]state.PodWant
	staged map[string]bool // by device
}

// sees is called before the reporter sees the Node and may allow the volume's calls.
func (j *judge) sees(n *corev1.Node) {
	j.mu.Lock()
	j.lists = n != nil && len(n.Status.VolumesAttached) > 0
	j.mu.Unlock()
	j.look("the reporter sees the Node")
}

func (j *judge) look(when string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	var present storagev1.VolumeAttachment
	if !j.lists || j.wanted == nil || !j.server.Get("volumeattachments", attached("a").Name, &present) {
		return
	}
	for uid, p := range j.wanted() {
		v := p.Volumes[0]
		if v.Hold != "" || v.Problem != "" {
			continue
		}
		device, want := v.Spec.PublishContext["device"], present.Status.AttachmentMetadata["device"]
		if device != want || v.Spec.Attachment != string(present.UID) {
			j.Errorf("%s: pod %s would be staged with %q of %s; %s has %q", when, uid, device, v.Spec.Attachment, present.UID, want)
		}
		j.staged[device] = true
	}
}

// A pod replaces another on the node while the DELETE of the volume's attachment is slow, and so may be the answers to
// gets of it: an answer may be older than the Node that lists the volume. The volume is not to be staged with the
// publish context of an earlier attachment, which may name the device of another volume. Each attachment costs one get
// after the Node lists it.
//
// Faults: A182.
func TestAVolumeIsNeverStagedWithAPreviousAttachment(t *testing.T) {
	for name, of := range map[string]struct{ deleteTakes, getTakes time.Duration }{
		"all is fast":               {},
		"a slow DELETE":             {deleteTakes: 300 * time.Millisecond},
		"a slow GET":                {getTakes: 3 * time.Second},
		"both, DELETE slower":       {12 * time.Second, 3 * time.Second},
		"both, GET slower":          {300 * time.Millisecond, 3 * time.Second},
		"a GET that spans it all":   {time.Second, 20 * time.Second},
		"an unnoticed DELETE comes": {time.Nanosecond, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j, c := &judge{T: t, staged: map[string]bool{}}, &controller{now: 1}
				w, _ := startAs(t, func(s *fakeapi.Server) {
					c.server, j.server = s, s
					claim(s, "a")
					s.Put(driver(true), claimPod("p1", "a"), numbered(1), attaching("a"))
				}, func(k *kube.Config) {
					core, storage := c.server.Clients(func(next http.RoundTripper) http.RoundTripper {
						return kube.Transport(late{next, "volumeattachments", of.getTakes})
					})
					k.Core, k.Storage, k.OnNode = core, storage, j.sees
					k.Bulk = &kubeclient.Clients{Core: core, Storage: storage}
				})
				advance(time.Minute)
				j.mu.Lock()
				j.wanted = w.wanted
				j.mu.Unlock()
				for round := range 4 {
					w.server.Put(claimPod(fmt.Sprint("p", round+2), "a"))
					w.server.Delete("pods", fmt.Sprint("default/p", round+1))
					advance(10 * time.Millisecond)
					w.server.Took()
					c.reattach(of.deleteTakes)
					for step := range 100 {
						if step == 30 && round%2 == 0 {
							c.reattach(0) // and again while a get is in flight
						}
						synctest.Wait()
						j.look(fmt.Sprint("round ", round))
						advance(of.getTakes/20 + time.Millisecond)
					}
					advance(2 * time.Minute)
					j.look("settled")
					w.expect(state.PodUID(fmt.Sprint("p", round+2)), "", "")
					if !j.staged[fmt.Sprint("/dev/", c.now)] {
						t.Fatalf("round %d: the volume never got its context", round)
					}
				}
				w.server.Took()
				advance(4 * time.Minute)
				if asked := w.asked(); len(asked) > 0 {
					t.Errorf("nothing happened, and still: %q", asked)
				}
			})
		})
	}
}

// wanted returns a copy of the pods' wishes.
func (w *world) wanted() map[state.PodUID]state.PodWant {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.pods)
}

// Before the Node lists the volume, an attachment that is attached may be the previous one. It is read once more when
// the Node lists the volume, and not again.
func TestAnAttachmentCostsOneGetAfterTheNodeListsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, func(s *fakeapi.Server) {
			claim(s, "a")
			s.Put(driver(true), numbered(1), attaching(), claimPod("p", "a"))
		})
		w.expect("p", "", "does not list its volume")
		w.server.Took()
		w.server.Put(attaching("a"))
		synctest.Wait()
		w.expect("p", "", "")
		if asked := w.asked(); len(asked) != 1 || !strings.HasPrefix(asked[0], "get volumeattachments ") {
			t.Errorf("asked %q", asked)
		}
		w.server.Put(attaching("a", "b"))
		advance(4 * time.Minute)
		if asked := w.asked(); len(asked) > 0 {
			t.Errorf("its list is the same, and still: %q", asked)
		}
		w.server.Expire() // the Node is listed: it may have been another attachment meanwhile, and is the same
		advance(time.Minute)
		w.expect("p", "", "")
	})
}

// At a start the attachments are read when the Node is known, once each.
func TestAStartReadsEachAttachmentOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var server *fakeapi.Server
		w, _ := startAs(t, func(s *fakeapi.Server) {
			server = s
			for _, v := range []string{"a", "b", "c"} {
				claim(s, v)
				s.Put(claimPod("p-"+v, v), attached(v))
			}
			s.Put(driver(true), attaching("a", "b", "c"))
		}, func(k *kube.Config) {
			k.Core, k.Storage = server.Clients(func(next http.RoundTripper) http.RoundTripper {
				return kube.Transport(late{next, "nodes", 3 * time.Second})
			})
		})
		w.expect("p-a", "", "not read from the API server yet")
		advance(time.Minute)
		for _, v := range []string{"a", "b", "c"} {
			w.expect(state.PodUID("p-"+v), "", "")
		}
		if n := counted(w.server.Took())["get volumeattachments"]; n != 3 {
			t.Errorf("%d gets of 3 attachments", n)
		}
	})
}
