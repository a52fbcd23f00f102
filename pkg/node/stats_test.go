package node

import (
	"strings"
	"testing"
)

// TestBuiltinKindsThatMountAreAskedByStatfs: and those that do not mount have
// nothing of their own to say.
func TestBuiltinKindsThatMountAreAskedByStatfs(t *testing.T) {
	n, _ := start(t, dirs(t))
	apply(t, n, filesPod+filesObjects)
	apply(t, n, strings.Replace(scratchPod, "name: web}\n", "name: scratch}\n", 1))
	for _, pod := range []string{"web", "scratch"} {
		if err := n.Manager().WaitForAttachAndMount(within(t), uidOf(t, n, pod)); err != nil {
			t.Fatal(err)
		}
	}
	asked := 0
	for _, s := range n.subjects() {
		if plain := strings.Contains(s.Key, "empty-dir") || strings.Contains(s.Key, "configmap"); plain != (s.Ask == nil) {
			t.Errorf("%s: asked %v", s.Key, s.Ask != nil)
		}
		if s.Ask == nil {
			continue
		}
		asked++
		r, err := s.Ask(t.Context())
		if err != nil || r.Bytes.Total <= 0 || r.Inodes.Total <= 0 || s.Source != "statfs" || r.Judged {
			t.Errorf("%s: %+v, %v", s.Key, r, err)
		}
	}
	if asked == 0 {
		t.Error("nobody is asked")
	}
}
