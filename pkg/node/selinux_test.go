package node

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// TestTheLabelOfContainersFilesIsThePolicys: and a host whose policy knows no
// containers has none.
func TestTheLabelOfContainersFilesIsThePolicys(t *testing.T) {
	for name, tc := range map[string]struct{ config, contexts, want, err string }{
		"quoted":      {"# c\nSELINUX=enforcing\nSELINUXTYPE=targeted\n", "process = \"p\"\nfile = \"system_u:object_r:container_file_t:s0\"\n", "system_u:object_r:container_file_t:s0", ""},
		"no file":     {config: "SELINUXTYPE=minimum\n"},
		"no policy":   {config: "SELINUX=permissive\n", err: `SELINUXTYPE: found ""`},
		"a path":      {config: "SELINUXTYPE=../x\n", err: `found "../x", want the name of a policy`},
		"not a label": {"SELINUXTYPE=targeted\n", "file = x\n", "x", `file: found "x", want a label`},
	} {
		dir := t.TempDir()
		write := func(path, text string) {
			path = filepath.Join(dir, path)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("config", tc.config)
		if tc.contexts != "" {
			write("targeted/contexts/lxc_contexts", tc.contexts)
		}
		got, err := containerFileLabel(dir)
		if got != tc.want && err == nil || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
	if got, err := seLinux(SELinuxOff); got.FileLabel != "" || err != nil {
		t.Errorf("off: %+v, %v", got, err)
	}
}

// Which volumes' files the runtime is to relabel, for every kind: one on a file
// system that has labels, one that has none or was mounted with one, a read-only one.
func TestWhichVolumesTheRuntimeRelabels(t *testing.T) {
	const always, writable, labelled, never = "always", "writable", "labelled", "never"
	kinds := map[state.DriverName]string{
		"kubernetes.io/empty-dir": always, "kubernetes.io/configmap": always, "kubernetes.io/secret": always,
		"kubernetes.io/downward-api": always, "kubernetes.io/projected": always, "kubernetes.io/local-volume": writable,
		"kubernetes.io/iscsi": labelled, "kubernetes.io/fc": labelled, "csi.example.com": labelled,
		"kubernetes.io/nfs": never, "kubernetes.io/cephfs": never, "kubernetes.io/glusterfs": never,
		"kubernetes.io/host-path": never, "kubernetes.io/image": never,
	}
	n, stop := start(t, dirs(t))
	defer stop()
	for kind := range n.builtins {
		if kinds[kind] == "" {
			t.Errorf("%s: not in this test", kind)
		}
	}
	for kind, want := range kinds {
		for _, tc := range []struct {
			labels, readOnly bool
			in               []string
		}{
			{true, false, []string{always, writable, labelled}},
			{false, false, []string{always, writable}},
			{true, true, []string{always}},
		} {
			v := manager.MountedVolume{Driver: kind, ReadOnly: tc.readOnly}
			if got := relabel(v, func(manager.MountedVolume) bool { return tc.labels }); got != slices.Contains(tc.in, want) {
				t.Errorf("%s, %+v: relabel is %v", kind, tc, got)
			}
		}
	}
}
