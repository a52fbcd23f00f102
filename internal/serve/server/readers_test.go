package server

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/host/holders"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// A password has any key, or none, and one mount option or attribute may be a list of options: CIFS' are often written so.
// Readers see the values of the keys that say where a volume is and how it is mounted.
func TestReadersSeeNoPasswordWithinAValue(t *testing.T) {
	const canary = "CANARY"
	spec := &state.Spec{
		MountFlags: []string{
			"vers=3.1,username=web,password=" + canary + "," + canary + ",uid=0", "noperm,pass=" + canary, "keyName=x", "pw=" + canary, "ro",
			"password=two " + canary,
		},
		Context: map[string]string{
			"mountOptions": "vers=3.1,password=" + canary, "source": "//web:" + canary + "@nas/x?sasToken=" + canary + "&path=1",
			"dsn": "postgres://nas/" + canary, "bearer": canary, "pat": canary, "example.com/connection": canary, "key": canary,
			"server": `{"host":"nas","pin":"` + canary + `"}`, "clusterID": "c1", "csi.storage.k8s.io/pod.name": "web",
			"storage.kubernetes.io/csiProvisionerIdentity": "n1", "unset": "",
		},
		PublishContext: map[string]string{"devicePath": "/dev/xvdc", "chap": canary},
		Config: []byte(`{"options":"a,secret=` + canary + `","n":1,"secretRef":{"name":"login"},"auth":{"plain":["` + canary + `"]},` +
			`"items":[{"key":"tls.crt","path":"a"}],"server":"nas"}`),
	}
	v := volumeStatus(manager.VolumeStatus{Volume: state.Volume{
		ID: "d^v", Spec: spec, PublishContext: map[string]string{"bearer": canary},
		Mounts: map[state.PodUID]state.Mount{"u": {MountSpec: state.MountSpec{Context: map[string]string{"pat": canary}}}},
	}})
	b, err := json.Marshal(forReader(v))
	if err != nil {
		t.Fatal(err)
	}
	all := string(b)
	if strings.Contains(all, canary) {
		t.Errorf("a secret is shown: %s", all)
	}
	for _, want := range []string{
		`"vers=3.1,username=web,password=***redacted***,***redacted***,uid=0"`, "noperm,pass=***redacted***", `path=1"`, `"n":1`,
		"keyName=x", `"ro"`, `"clusterID":"c1"`, `"csi.storage.k8s.io/pod.name":"web"`, `"storage.kubernetes.io/csiProvisionerIdentity":"n1"`,
		`"devicePath":"/dev/xvdc"`, `"secretRef":{"name":"login"}`, `{"key":"tls.crt","path":"a"}`, `"server":"nas"`, `"unset":""`,
	} {
		if !strings.Contains(all, want) {
			t.Errorf("%s is not shown: %s", want, all)
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
