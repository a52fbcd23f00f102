package main

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/tools/doctor"
)

// Whatever else doctor finds on the host of the test, a kubelet on the root directory is a failure.
func TestDoctorExitsByWhatItFinds(t *testing.T) {
	dir, err := os.MkdirTemp("", "doctor-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	kubelet := filepath.Join(dir, "pod-resources")
	if err := os.Mkdir(kubelet, 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(kubelet, "kubelet.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	call := func(args ...string) (int, string, string) {
		var out, errs bytes.Buffer
		args = append([]string{"--socket", dir + "/s", "doctor", "--root-dir", dir, "--state-dir", dir + "/state"}, args...)
		code := run(t.Context(), args, nil, &out, &errs)
		return code, out.String(), errs.String()
	}
	code, out, errs := call("-q")
	if code != exitFailed || !strings.Contains(out, "root.kubelet") || !strings.HasPrefix(out, "STATUS") || strings.Contains(out, "\nok ") || !strings.Contains(errs, "at least one check failed") {
		t.Errorf("table: exit code %d\n%s%s", code, out, errs)
	}
	code, out, _ = call("-o", "json", "--driver", "some.example.com")
	var r doctor.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != exitFailed || r.Status != doctor.Fail {
		t.Errorf("json: exit code %d, %v\n%s", code, err, out)
	}
	if code, _, errs := call("-o", "jsonpath={.findings[?(@.check=='driver.some.example.com.needs')].status}"); code != exitFailed || !strings.Contains(errs, "failed") {
		t.Errorf("jsonpath: exit code %d: %s", code, errs)
	}
	b := newBackend(scene{problems: []server.Problem{
		{Source: "binder", Object: "persistentvolume d", Message: "claims a/x, b/y all name it"}, {Source: "api", Object: "pod a/b", Message: "wrong"},
	}})
	stop, err := daemon(dir+"/s", b, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	_, out, _ = call("-q")
	if err := stop(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(out, "persistentvolume d: claims a/x, b/y all name it") || strings.Contains(out, "pod a/b") {
		t.Errorf("with a daemon:\n%s", out)
	}
	if code, _, _ := call("-o", "xml"); code != exitUsage {
		t.Errorf("a form of output that there is not: exit code %d", code)
	}
}
