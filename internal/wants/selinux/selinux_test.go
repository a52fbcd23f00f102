package selinux

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The policy defines the label of containers' files; a host whose policy knows no
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
	if got, err := Read(Off); got.FileLabel != "" || err != nil {
		t.Errorf("off: %+v, %v", got, err)
	}
}

// By default volumes of every access mode are mounted with labels, as in Kubernetes 1.37.
//
// Items: Q05.
func TestWhichModesMountEveryVolumeWithALabel(t *testing.T) {
	want := map[string]bool{"auto": true, "on": true, "one-pod": false, "off": false}
	for _, m := range Modes() {
		all, known := want[m]
		if !known || Mode(m).all() != all {
			t.Errorf("%s: %v", m, Mode(m).all())
		}
	}
	if !Mode("").all() {
		t.Error("a node without a mode does not mount every volume with a label")
	}
}
