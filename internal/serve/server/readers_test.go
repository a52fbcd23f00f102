package server

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/host/holders"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// One mount option or attribute may be a list of options: CIFS' are often written so.
func TestReadersSeeNoPasswordWithinAValue(t *testing.T) {
	const canary = "CANARY"
	spec := &state.Spec{
		MountFlags: []string{"vers=3.1,username=web,password=" + canary + ",uid=0", "noperm,pass=" + canary, "keyName=x"},
		Context:    map[string]string{"mountOptions": "vers=3.1,password=" + canary, "source": "//nas/x?sasToken=" + canary + "&y=1"},
		Config:     []byte(`{"options":"a,secret=` + canary + `","n":1}`),
	}
	shown := forReader(volumeStatus(manager.VolumeStatus{Volume: state.Volume{ID: "d^v", Spec: spec}})).Volume.Spec
	all := fmt.Sprint(shown.MountFlags, shown.Context, string(shown.Config))
	if strings.Contains(all, canary) {
		t.Errorf("a secret is shown: %s", all)
	}
	for _, want := range []string{
		"vers=3.1,username=web,password=***redacted***,uid=0", "noperm,pass=***redacted***", "&y=1", `"n":1`, "keyName=x",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not shown: %s", want, all)
		}
	}
}

// askedWho is an operator whose volume is held by a process with an open file.
type askedWho struct{ operator }

func (askedWho) Who(context.Context, WhoQuery) (holders.Report, error) {
	return holders.Report{Processes: []holders.Process{{PID: 7, Name: "postgres", Uses: []holders.Use{{Kind: "fd", Path: "/data/CANARY"}}}}}, nil
}

// A user who may only read sees which process has a volume, and not the names of the files that it has open.
func TestReadersSeeNoOpenFiles(t *testing.T) {
	cfg := config(t, newBackend(Facts{Volumes: []manager.VolumeStatus{{Volume: state.Volume{ID: "d^v", Spec: &state.Spec{Name: "pv"}}}}}))
	cfg.Operator = askedWho{operator{t}}
	s := &Server{cfg: cfg}
	for uid, shown := range map[uint32]bool{0: true, 65534: false} {
		r := httptest.NewRequest(http.MethodGet, "/v1/who?volume=pv", nil)
		w := httptest.NewRecorder()
		s.who(w, r.WithContext(context.WithValue(r.Context(), peerKey{}, peer{uid: uid})))
		text := w.Body.String()
		if strings.Contains(text, "CANARY") != shown || !strings.Contains(text, `"postgres"`) || !strings.Contains(text, `"fd"`) {
			t.Errorf("user %d: %s", uid, text)
		}
	}
}
