package kube_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/cluster/kube"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/test/fakeapi"
)

// One list without the node's pods, after the server forgot the watch's version, removes none: the server is asked for
// each by its name, and still has them. A pod that is gone is removed by the next good list.
func TestOneWrongListRemovesNoPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, everyKind)
		advance(time.Minute)
		now := claimPod("another", "a")
		now.Spec.NodeName = "n2"
		w.server.Put(now)
		w.server.Get("pods", "default/another", now) // its version is the server's
		lies := 0
		w.server.Fail(func(r fakeapi.Request) *fakeapi.Answer {
			if r.Verb != "list" || r.Resource != "pods" || r.FieldSelector != "spec.nodeName=n1" || lies == 2 {
				return nil
			}
			lies++
			return &fakeapi.Answer{Code: http.StatusOK, Body: fmt.Sprintf(
				`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":%q},"items":[]}`, now.ResourceVersion)}
		})
		w.server.Took()
		w.server.Expire()
		advance(100 * time.Millisecond)
		if lies != 1 || len(w.gone) > 0 {
			t.Errorf("%d wrong lists, gone: %q", lies, w.gone)
		}
		if f := fmt.Sprint(w.provider.Findings()); !strings.Contains(f, "the answer lacks pod") {
			t.Errorf("problems: %s", f)
		}
		if took := w.server.Took(); !slices.Contains(took, "list pods spec.nodeName=n1,metadata.name=leaves") {
			t.Errorf("asked: %q", took)
		}
		w.server.Delete("pods", "default/leaves")
		advance(2 * time.Minute)
		if lies != 2 || !slices.Equal(w.gone, []state.PodUID{"leaves"}) || len(w.provider.Findings()) > 0 {
			t.Errorf("%d wrong lists, gone: %q, problems: %v", lies, w.gone, w.provider.Findings())
		}
	})
}

// What cannot be confirmed is kept, and tried again: nothing is known about the pod then.
func TestAPodIsKeptUntilItsEndIsConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, everyKind)
		advance(time.Minute)
		w.server.Fail(func(r fakeapi.Request) *fakeapi.Answer {
			if strings.Contains(r.FieldSelector, "metadata.name=leaves") {
				return &fakeapi.Answer{Code: http.StatusInternalServerError}
			}
			if r.Verb == "watch" && r.Resource == "pods" {
				return &fakeapi.Answer{Code: http.StatusGone}
			}
			return nil
		})
		w.server.EndWatches()
		w.server.Delete("pods", "default/leaves")
		advance(time.Minute)
		if len(w.gone) > 0 {
			t.Errorf("gone: %q", w.gone)
		}
		w.server.Fail(nil)
		advance(2 * time.Minute)
		if !slices.Equal(w.gone, []state.PodUID{"leaves"}) {
			t.Errorf("gone: %q", w.gone)
		}
	})
}

// The pods of another node are left alone, from a list and from a watch, though the server sends them: another node has
// their volumes. Another pod of a known one's name there shows that the known one is gone.
func TestAttackPodsOfAnotherNodeAreLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		on := func(node, name string) *corev1.Pod {
			p := claimPod(name, "a")
			p.Spec.NodeName = node
			return p
		}
		var log strings.Builder
		w, _ := startAs(t, func(s *fakeapi.Server) {
			s.AllNodes()
			everyKind(s)
			s.Put(on("n2", "elsewhere"), on("", "unbound"))
		}, func(c *kube.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		advance(time.Minute)
		w.server.Put(on("n2", "later"))
		advance(time.Minute)
		if len(w.pods) != 6 {
			t.Errorf("%d pods", len(w.pods))
		}
		for _, uid := range []state.PodUID{"elsewhere", "unbound", "later"} {
			if _, has := w.pods[uid]; has {
				t.Errorf("pod %s is taken", uid)
			}
		}
		if !strings.Contains(log.String(), "pod=default/later node=n2") {
			t.Errorf("the log: %s", &log)
		}
		w.server.Fail(away)
		w.server.EndWatches()
		w.server.Delete("pods", "default/leaves")
		moved := on("n2", "leaves")
		moved.UID = "leaves-2"
		w.server.Put(moved)
		advance(time.Second)
		w.server.Fail(nil)
		w.server.Expire()
		advance(2 * time.Minute)
		if !slices.Equal(w.gone, []state.PodUID{"leaves"}) || len(w.pods) != 5 {
			t.Errorf("gone: %q; %d pods", w.gone, len(w.pods))
		}
	})
}

// A PersistentVolume that was deleted and made again under its name, with another handle, is noticed although nothing
// else changes: the pod that has the old one is told so (pkg/manager TestAReplacedVolumeWaitsForThePathOfTheOldOne).
func TestAVolumeThatWasReplacedIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, everyKind)
		advance(time.Minute)
		var pv corev1.PersistentVolume
		w.server.Get("persistentvolumes", "pv-a", &pv)
		pv.UID, pv.Spec.CSI.VolumeHandle = "another", "another"
		w.server.Delete("persistentvolumes", "pv-a")
		w.server.Put(&pv)
		w.server.Took()
		advance(2 * time.Hour)
		if id := w.volume("p-a").ID; id != "d.test^another" {
			t.Errorf("the pod's volume is %s", id)
		}
		if n := counted(w.server.Took())["get persistentvolumes"]; n < 2 || n > 4 { // two volumes, once or twice each
			t.Errorf("%d reads in two hours", n)
		}
	})
}
