package server

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/stats"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// The socket always has the page, the port only if configured. It explains as the API does.
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

// The controller's reasons repeat the words of a driver that fails to make a volume or a snapshot, and so does the
// problem of a pod that waits for the volume. The page has none of these words, also while the claim's reason is newer
// than the pod's problem.
//
// Attacks: C53.
func TestThePageHasNoWordOfADriverThatMakesNothing(t *testing.T) {
	const word = "CANARY-in-a-form-that-is-not-known"
	retry := RetryStatus{Attempts: 4, Since: now, Call: "CreateVolume", Code: "Internal", Error: word}
	const because = "CreateVolume: Internal: " + word
	waits := manager.PodVolumeStatus{
		Names: []string{"data"}, Claim: "default/data", Step: plan.Resolve,
		BlockedBy: "persistentvolumeclaim default/data: not bound yet: " + because,
	}
	facts := Facts{
		Pods: []manager.PodStatus{{
			Pod: state.Pod{UID: "u1", Namespace: "default", Name: "web"}, Listed: true,
			Volumes: []manager.PodVolumeStatus{waits},
		}},
		Claims: []ClaimStatus{
			{Namespace: "default", Name: "data", Phase: "Pending", Reason: because, Retry: retry},
			{Namespace: "default", Name: "log", Phase: "Pending", Reason: "driver d.example did not answer with its capabilities: " + because},
		},
		Snapshots: []SnapshotStatus{{Namespace: "default", Name: "monday", Phase: "Pending", Reason: because, Retry: retry}},
		Groups:    []GroupSnapshotStatus{{Namespace: "default", Name: "all", Phase: "Pending", Reason: because, Retry: retry}},
		Now:       now,
	}
	b := newBackend(facts)
	cfg := config(t, b)
	cfg.HTTPAddress, cfg.Page = "127.0.0.1:0", true
	s, _ := start(t, cfg)
	page := func() (all string) {
		for _, path := range []string{"pod/default/web", "pvc/default/data", "pvc/default/log", "snapshot/default/monday", "groupsnapshot/default/all"} {
			code, text := httpGet(t, "http://"+s.HTTPAddress()+"/ui/explain/"+path)
			if code != http.StatusOK {
				t.Errorf("%s: %d %s", path, code, text)
			}
			all += text
		}
		return all + s.pageWhy()("u1", waits)
	}
	all := page()
	for _, want := range []string{"CreateVolume answered Internal", "did not answer with its capabilities", ownersOnly, "claim default/data is Pending"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not on the page: %s", want, all)
		}
	}
	b.set(func(f *Facts) {
		f.Claims = []ClaimStatus{{Namespace: "default", Name: "data", Phase: "Pending", Call: "CreateVolume"}}
	})
	if all += page(); strings.Contains(all, word) {
		t.Errorf("the page: %s", all)
	}
	if _, text := unixGet(t, cfg.Socket, http.MethodGet, "/v1/explain/pod/default/web", nil); !strings.Contains(text, word) {
		t.Errorf("the daemon's own explanation lacks the driver's word: %s", text)
	}
}

// Every user of the host may read the page: it has codes, and not the words of drivers, which may quote secrets that
// they received. Users who may ask the daemon can read those words.
//
// Attacks: C53.
func TestThePageHasNoWordOfADriver(t *testing.T) {
	const word = "CANARY-in-a-form-that-is-not-known"
	now := time.Now()
	retry := state.Retry{Attempts: 4, Since: now, Call: "NodeStageVolume", Code: "Internal", Error: word, First: "Unavailable: " + word}
	spec := &state.Spec{Driver: "d.example", Handle: "h", Name: "pv-data", Claim: "default/data"}
	left := state.Volume{ID: "d.example^left", Spec: spec, Stage: state.Fact{Phase: state.Leaving, Failed: &retry}, Mounts: map[state.PodUID]state.Mount{"gone": {Fact: state.Fact{Phase: state.Leaving, Failed: &retry}}}}
	volume := state.Volume{ID: "d.example^h", Spec: spec, Needs: state.Needs{Stage: true}, Stage: state.Fact{Phase: state.Entering, Failed: &retry}, ExpandFailed: &retry, Attach: state.Fact{Failed: &retry}}
	facts := Facts{
		Pods: []manager.PodStatus{{
			Pod: state.Pod{UID: "u1", Namespace: "default", Name: "web"}, Listed: true,
			Volumes: []manager.PodVolumeStatus{{Names: []string{"data"}, ID: volume.ID, Driver: "d.example", Claim: "default/data", Step: plan.Stage, Retry: retry}},
		}},
		Volumes: []manager.VolumeStatus{{Volume: volume, Wanted: []state.PodUID{"u1"}}, {Volume: left}},
		Drivers: []manager.DriverStatus{
			{DriverInfo: manager.DriverInfo{Name: "d.example"}, Up: true, Generation: 1},
			{DriverInfo: manager.DriverInfo{Name: "e.example"}, Problem: word, Generation: 2, Volumes: 1},
		},
		Claims:  []ClaimStatus{{Namespace: "default", Name: "data", Phase: "Pending", Retry: RetryOf(retry)}},
		Sockets: []SocketStatus{{Path: "/s", Driver: "e.example", State: "failed", Problem: word}},
		Stats: []stats.Status{{
			Key: string(volume.ID), Driver: "d.example", Error: word, Health: stats.Abnormal,
			Conditions: []stats.Condition{{Status: "DEGRADED", Reason: word, Message: word}},
		}},
		Now: now,
	}
	cfg := config(t, newBackend(facts))
	cfg.HTTPAddress, cfg.Page = "127.0.0.1:0", true
	s, _ := start(t, cfg)
	all := ""
	for _, path := range []string{"pod/default/web", "volume/d.example%5Eh", "volume/d.example%5Eleft", "driver/e.example", "pvc/default/data"} {
		code, text := httpGet(t, "http://"+s.HTTPAddress()+"/ui/explain/"+path)
		if code != http.StatusOK {
			t.Errorf("%s: %d %s", path, code, text)
		}
		all += text
	}
	why := s.pageWhy()
	all += why("u1", facts.Pods[0].Volumes[0])
	for _, p := range s.pageProblems() {
		all += p.Why + p.Text + p.Where
	}
	for _, d := range publicDrivers(facts.Drivers) {
		all += d.Problem
	}
	if strings.Contains(all, word) || !strings.Contains(all, "NodeStageVolume answered Internal") || !strings.Contains(all, ownersOnly) {
		t.Errorf("the page: %s", all)
	}
	if _, text := unixGet(t, cfg.Socket, http.MethodGet, "/v1/explain/pod/default/web", nil); !strings.Contains(text, word) {
		t.Errorf("the daemon's own explanation lacks the driver's word: %s", text)
	}
	if facts.Pods[0].Volumes[0].Retry.Error != word || facts.Volumes[0].Volume.Stage.Failed.Error != word || facts.Stats[0].Conditions[0].Message != word {
		t.Error("what others read was changed")
	}
}

// A browser on this host reads no metrics for a page from another name that resolves to this host.
//
// Attacks: C54.
func TestMetricsAreNotForOtherNames(t *testing.T) {
	cfg := config(t, newBackend(Facts{}))
	cfg.HTTPAddress, cfg.Version.Node = "127.0.0.1:0", "node-1"
	s, _ := start(t, cfg)
	for host, want := range map[string]int{
		"node-1": 200, "node-1:9811": 200, "127.0.0.1:9811": 200, "localhost": 200, "[::1]:9811": 200,
		"evil.example:9811": 403, "node-1.evil.example": 403,
	} {
		if got, _ := getAs(t, host, "http://"+s.HTTPAddress()+"/metrics"); got != want {
			t.Errorf("host %q: %d, want %d", host, got, want)
		}
	}
}

// Such a page learns from /readyz and /healthz their status alone, which a probe under an alias of the node needs.
func TestReasonsAreNotForOtherNames(t *testing.T) {
	b := newBackend(Facts{})
	cfg := config(t, b)
	cfg.HTTPAddress, cfg.Version.Node = "127.0.0.1:0", "node-1"
	s, _ := start(t, cfg)
	for _, notReady := range []string{"", "source file: /etc/manifests has not been read yet"} {
		status, words := 200, "the journal may have lost records"
		if notReady != "" {
			b.Set(func(f *Facts) { f.NotReady = []string{notReady} })
			status, words = 503, notReady
		}
		for host, shown := range map[string]bool{
			"node-1:9811": true, "127.0.0.1:9811": true, "localhost": true, "evil.example": false, "node-1.evil.example:9811": false,
		} {
			got, text := getAs(t, host, "http://"+s.HTTPAddress()+"/readyz")
			if got != status || strings.Contains(text, words) != shown || !shown && strings.Contains(strings.ReplaceAll(text, host, ""), "node-1") {
				t.Errorf("host %q: %d %s", host, got, text)
			}
			if got, text := getAs(t, host, "http://"+s.HTTPAddress()+"/healthz"); got != 200 || text != "ok\n" {
				t.Errorf("host %q: /healthz: %d %s", host, got, text)
			}
		}
	}
}

// getAs asks for a URL under a host name.
func getAs(t *testing.T, host, url string) (status int, text string) {
	t.Helper()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = host
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}
