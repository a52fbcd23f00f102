package server

import (
	"net/http"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// The page is at the socket always, at the port where it was asked for, and
// explains as the API does.
func TestStatusPage(t *testing.T) {
	facts := Facts{Pods: []manager.PodStatus{{
		Pod: state.Pod{UID: "u1", Namespace: "default", Name: "web"}, Listed: true, Ready: true,
	}}}
	for _, there := range []bool{true, false} {
		cfg := config(t, newBackend(facts))
		cfg.HTTPAddress, cfg.Page = "127.0.0.1:0", there
		s, stop := start(t, cfg)
		want := http.StatusNotFound
		if there {
			want = http.StatusOK
		}
		if code, _ := httpGet(t, "http://"+s.HTTPAddress()+"/ui/"); code != want {
			t.Errorf("at the port with Page %t: %d, want %d", there, code, want)
		}
		code, text := unixGet(t, cfg.Socket, http.MethodGet, "/ui/explain/pod/default/web", nil)
		if code != http.StatusOK || !strings.HasPrefix(text, "pod default/web: fine") {
			t.Errorf("at the socket with Page %t: %d %q", there, code, text)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
}
