package source_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
)

// TestManyAtOnceAreWhatTheyAreOneByOne: the catalog checks and resolves the objects of a start on all processors. The
// result is that of one object after another: it leaves out wrong objects, sends each pod once and in order, and
// of two pods with one UID, however far apart, the first has it.
func TestManyAtOnceAreWhatTheyAreOneByOne(t *testing.T) {
	const n = 200
	var objects []runtime.Object
	for i := range n {
		objects = append(objects, decode(t, pod(fmt.Sprintf("p%03d", i), fmt.Sprintf("c%03d", i)))...)
		objects = append(objects, decode(t, claim(fmt.Sprintf("c%03d", i), fmt.Sprintf("v%03d", i))+volume(fmt.Sprintf("v%03d", i), fmt.Sprintf("c%03d", i)))...)
	}
	bad := decode(t, volume("bad", ""))[0].(interface{ SetName(string) })
	bad.SetName("../bad")
	objects = append(objects, bad.(runtime.Object))
	rand.Shuffle(len(objects), func(i, j int) { objects[i], objects[j] = objects[j], objects[i] })

	twin := decode(t, strings.Replace(pod("twin", "c007"), "uid: twin", "uid: p003", 1))
	objects = append(objects, twin...)

	one, oneSink := start()
	for _, obj := range objects {
		_ = one.Put("api", obj) // the bad one's error is compared below
	}
	all, allSink := start()
	err := all.Apply("api", source.Update{Put: objects})
	if err == nil || !strings.Contains(err.Error(), "../bad") || strings.Count(err.Error(), "\n") > 0 {
		t.Errorf("of the one that is wrong: %v", err)
	}
	if !reflect.DeepEqual(allSink.pods, oneSink.pods) || !reflect.DeepEqual(all.Wants(), one.Wants()) || len(all.Volumes()) != n {
		t.Error("other wants than one by one")
	}
	told := allSink.took()
	if len(told) != n || !slices.IsSorted(told) {
		t.Errorf("told %d times of %d pods: %q", len(told), n, told)
	}
	for _, uid := range slices.Sorted(maps.Keys(allSink.pods)) {
		for _, v := range allSink.pods[uid].Volumes {
			if v.Problem != "" {
				t.Errorf("pod %s: %q", uid, v.Problem)
			}
		}
	}
	if name := allSink.pods["p003"].Pod.Name; name != "p003" {
		t.Errorf("pod %s has the uid of p003", name)
	}
}

// The catalog does not check again what a provider has checked.
func TestWhatWasCheckedIsTaken(t *testing.T) {
	c, _ := start()
	bad := decode(t, volume("bad", ""))[0].(interface{ SetName(string) })
	bad.SetName("../bad")
	if err := c.Apply("api", source.Update{Put: []runtime.Object{bad.(runtime.Object)}, Checked: true}); err != nil || len(c.Volumes()) != 1 {
		t.Errorf("%v, %d volumes", err, len(c.Volumes()))
	}
}
