package source

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// The pod that had a UID keeps it, listed or not; without one it goes to the pod from whose name it follows.
func TestTheFirstPodKeepsItsUID(t *testing.T) {
	bank, evil, aaa := podOf("bank", "web"), podOf("evil", "evil"), podOf("aaa", "other")
	follows := state.PodUID(resolve.UID(bank))
	for what, c := range map[string]struct {
		uid    state.PodUID
		had    Key
		listed []Key
		want   Key
	}{
		"none":                            {},
		"one":                             {uid: "u", listed: []Key{evil}, want: evil},
		"it had it":                       {uid: "u", had: evil, listed: []Key{aaa, evil}, want: evil},
		"it had it, though copied":        {uid: follows, had: evil, listed: []Key{bank, evil}, want: evil},
		"it had it, and is not listed":    {uid: "u", had: bank, listed: []Key{aaa, evil}},
		"it follows from the name":        {uid: follows, listed: []Key{aaa, bank, evil}, want: bank},
		"another order":                   {uid: follows, listed: []Key{evil, bank, aaa}, want: bank},
		"of no name, by the names' order": {uid: "u", listed: []Key{evil, bank, aaa}, want: aaa},
	} {
		if got := holderOf(c.uid, c.had, c.listed); got != c.want {
			t.Errorf("%s: %s, want %s", what, got, c.want)
		}
	}
}

func podOf(namespace, name string) Key {
	return Key{Kind: resolve.KindPod, Namespace: namespace, Name: name}
}

// node is a sink that has volumes of a pod from the moment it hears of it until the test removes them.
type node struct {
	t       *testing.T
	wanted  map[state.PodUID]state.Pod
	has     map[state.PodUID]state.Pod
	loading bool // the loop acts on nothing yet
	removed int
}

func (n *node) SetPod(w state.PodWant) {
	uid := w.Pod.UID
	if has, some := n.has[uid]; some && has.Name != w.Pod.Name {
		n.t.Errorf("pod %s gets uid %s while the node has volumes of pod %s", w.Pod.Name, uid, has.Name)
	}
	if _, some := n.wanted[uid]; some && n.wanted[uid].Name != w.Pod.Name && !n.loading {
		n.t.Errorf("pod %s replaces pod %s", w.Pod.Name, n.wanted[uid].Name)
	}
	n.wanted[uid], n.has[uid] = w.Pod, w.Pod
}

func (n *node) RemovePod(uid state.PodUID) {
	delete(n.wanted, uid)
	n.removed++
}

func (*node) SourceSynced(string) {}

func (n *node) knows(uid state.PodUID) bool {
	_, wanted := n.wanted[uid]
	_, has := n.has[uid]
	return wanted || has
}

// unmount removes the volumes of pods that are not wanted.
func (n *node) unmount() {
	maps.DeleteFunc(n.has, func(uid state.PodUID, _ state.Pod) bool { _, wanted := n.wanted[uid]; return !wanted })
}

func withUID(namespace, name string, uid types.UID) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: uid}}
}

func watched(t *testing.T) (*Catalog, *node) {
	n := &node{t: t, wanted: map[state.PodUID]state.Pod{}, has: map[state.PodUID]state.Pod{}}
	return New(Config{Sink: n, Remains: n.knows}), n
}

func mustPut(t *testing.T, c *Catalog, provider string, p *corev1.Pod) {
	t.Helper()
	if err := c.Put(provider, p); err != nil {
		t.Fatal(err)
	}
}

// A newcomer with the UID of a pod is refused by name, and gets it when nothing remains of that pod: whichever
// source it has, and whichever source spoke first after a restart.
func TestANewcomerWaitsForThePodThatHasItsUID(t *testing.T) {
	const uid = state.PodUID("u")
	web, evil := withUID("bank", "web", types.UID(uid)), withUID("evil", "evil", types.UID(uid))
	holds := func(t *testing.T, c *Catalog, n *node, name string) {
		t.Helper()
		if got := n.wanted[uid].Name; got != name {
			t.Errorf("pod %q has the uid, want %q", got, name)
		}
		all := c.Problems()
		if len(all) == 0 {
			return
		}
		if p := all[0]; len(all) != 1 || strings.Contains(p.Where, name) && name != "" || !strings.Contains(p.Text, "metadata.uid: found u, which pod ") {
			t.Errorf("problems: %+v", all)
		}
	}
	leaves := func(t *testing.T, c *Catalog, n *node, provider string) {
		t.Helper()
		c.Delete(provider, podOf("bank", "web"))
		holds(t, c, n, "")
		if wait := c.Recheck(); !wait {
			t.Error("no pod waits")
		}
		if all := c.Problems(); len(all) != 1 || !strings.Contains(all[0].Text, "pod bank/web has") {
			t.Errorf("problems: %+v", all)
		}
		n.unmount()
		if wait := c.Recheck(); wait {
			t.Error("a pod still waits")
		}
		holds(t, c, n, "evil")
		if all := c.Problems(); len(all) != 0 {
			t.Errorf("problems: %+v", all)
		}
	}
	for _, sources := range [][2]string{{"api", "api"}, {"file", "api"}, {"api", "file"}, {"kube", "file"}} {
		first, second := sources[0], sources[1]
		t.Run(first+" then "+second, func(t *testing.T) {
			c, n := watched(t)
			mustPut(t, c, first, web)
			mustPut(t, c, second, evil)
			holds(t, c, n, "web")
			if all := c.Problems(); len(all) != 1 || all[0].Provider != second || all[0].Where != "pod evil/evil" {
				t.Errorf("problems: %+v", all)
			}
			leaves(t, c, n, first)
		})
		t.Run("records, "+second+" then "+first, func(t *testing.T) {
			c, n := watched(t)
			had := state.Pod{UID: uid, Namespace: "bank", Name: "web"}
			n.has[uid] = had
			c.Recorded([]state.Pod{had})
			mustPut(t, c, second, evil) // the source of web has not spoken
			holds(t, c, n, "")
			mustPut(t, c, first, web)
			holds(t, c, n, "web")
			leaves(t, c, n, first)
		})
	}
	t.Run("a source is quicker than the records", func(t *testing.T) {
		n := &node{t: t, wanted: map[state.PodUID]state.Pod{}, has: map[state.PodUID]state.Pod{}}
		c := New(Config{Sink: n, Remains: func(state.PodUID) bool { return true }})
		mustPut(t, c, "file", evil)
		n.unmount()
		delete(n.has, uid) // the loop has not begun
		c.Recorded([]state.Pod{{UID: uid, Namespace: "bank", Name: "web"}})
		holds(t, c, n, "")
		mustPut(t, c, "api", web)
		holds(t, c, n, "web")
	})
	t.Run("a source with both is quicker than the records", func(t *testing.T) {
		n := &node{t: t, wanted: map[state.PodUID]state.Pod{}, has: map[state.PodUID]state.Pod{}, loading: true}
		c := New(Config{Sink: n, Remains: func(state.PodUID) bool { return true }})
		aaa := withUID("aaa", "aaa", types.UID(uid))
		if err := c.Apply("api", Update{Put: []runtime.Object{aaa, web}}); err != nil {
			t.Fatal(err)
		}
		delete(n.has, uid) // the loop has not begun
		c.Recorded([]state.Pod{{UID: uid, Namespace: "bank", Name: "web"}})
		holds(t, c, n, "web")
		if n.removed > 0 { // the loop would remove the volumes of web
			t.Errorf("the pod was said to be gone %d times", n.removed)
		}
	})
	t.Run("the pod itself comes back", func(t *testing.T) {
		c, n := watched(t)
		mustPut(t, c, "api", web)
		c.Delete("api", podOf("bank", "web"))
		mustPut(t, c, "file", web)
		holds(t, c, n, "web")
	})
}

// Pods of one UID come, go and are unmounted in any order: the node never gets one while it has volumes of
// another, and in the end the listed one has the UID.
func TestAUIDChangesHandsOnlyWhenNothingRemains(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		c, n := watched(t)
		listed := map[string]bool{}
		for range 30 {
			name := fmt.Sprint("p", r.IntN(3))
			provider := "file"
			switch r.IntN(4) {
			case 0, 1:
				listed[name] = true
				mustPut(t, c, provider, withUID("n", name, "u"))
			case 2:
				delete(listed, name)
				c.Delete(provider, podOf("n", name))
			case 3:
				n.unmount()
				c.Recheck()
			}
		}
		n.unmount()
		c.Recheck()
		holder, has := c.UIDHolder("u")
		if has != (len(listed) > 0) || has && !listed[holder.Name] || len(c.left) != 0 || len(c.Problems()) != max(0, len(listed)-1) {
			t.Fatalf("%s has the uid, listed are %v, left %v", holder, slices.Sorted(maps.Keys(listed)), c.left)
		}
	}
}

// A pod whose own UID another one has copied is told so: its author has written none, and can.
func TestWhatAPodWithATakenUIDIsTold(t *testing.T) {
	web, evil := Key{Kind: resolve.KindPod, Namespace: "bank", Name: "web"}, Key{Kind: resolve.KindPod, Namespace: "evil", Name: "evil"}
	uid := state.PodUID(resolve.UID(web))
	for pod, want := range map[Key]string{
		web:  "which follows from the name, is what pod evil/evil says and has; delete that pod, or want another uid",
		evil: "which pod bank/web has; want one of its own, or none",
	} {
		other := web
		if pod == web {
			other = evil
		}
		if got := UIDTaken(uid, pod, other); !strings.Contains(got, want) {
			t.Errorf("%s is told %q, want %q", pod, got, want)
		}
	}
}
