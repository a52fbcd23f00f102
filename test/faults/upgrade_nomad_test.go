package faults

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	csistrict "github.com/csi-volmgr/csi-volmgr/test/csi-strict"
)

// Nomad's volumes of an older program, one of them with the options that are refused today, stay where they are, at each
// start of Nomad's client, in the newer program and back. A volume that the newer one made is in the namespace that
// follows from Nomad's; the older program finds it again if its parameters say so.
func TestUpgradeAndBackWithNomadsVolumes(t *testing.T) {
	if before == "" {
		t.Skip("UPGRADE_FROM=revision, the release before this one: make upgrade")
	}
	t.Parallel()
	n := newPlace(t)
	n.program, n.StorageID = before, ""
	n.begin(csistrict.Script{})
	n.Apply(want{name: "data"}.String())
	n.Eventually("the claim to be bound", func() bool {
		return n.CLI("", "get", "pvc", "data", "-o", "jsonpath={.volume}").Stdout != ""
	})
	own, shared := `{"class":"class","uid":"7"}`, `{"claim":"data","mode":"0700"}`
	paths := map[string]string{}
	create := func(id, least, parameters string) {
		t.Helper()
		path, said := n.hostVolume("create", id, least, parameters)
		if before, is := paths[id]; said != "" || is && path != before {
			t.Fatalf("volume %s at %q and before at %q: %s", id, path, before, said)
		}
		if _, is := paths[id]; !is {
			n.write(filepath.Join(path, "f"), "of "+id)
		}
		paths[id] = path
		n.wantFile(filepath.Join(path, "f"), "of "+id)
	}
	both := func() {
		t.Helper()
		for range 2 {
			create("1", "1048576", own)
			create("2", "0", shared)
		}
	}
	both()
	replace := func(by string) {
		t.Helper()
		n.daemon.Ask()
		n.program = by
		n.start()
		n.DriverUp(driverName)
		both()
	}
	replace("")
	if _, said := n.hostVolume("create", "3", "0", shared); !strings.Contains(said, "csi-volmgr run --nomad-allow=default/namespace=default") {
		t.Errorf("a new volume of another's claim: %s", said)
	}
	create("4", "1048576", own)
	if list := n.Do("", "volume", "list"); !strings.Contains(list, "nomad-default/nomad-4") || !strings.Contains(list, "default/nomad-1") {
		t.Errorf("volume list:\n%s", list)
	}

	replace(before)
	n.wantFile(filepath.Join(paths["4"], "f"), "of 4") // it stays mounted
	create("4", "1048576", `{"class":"class","uid":"7","namespace":"nomad-default"}`)
	replace("")
	create("4", "1048576", own)
	for _, id := range []string{"1", "2", "4"} {
		n.Eventually("volume "+id+" to be deleted", func() bool { // a process that is just starting cannot be inspected
			_, said := n.hostVolume("delete", id, "", "")
			return said == ""
		})
	}
	n.Do("", "delete", "pvc", "data")
	n.Do("", "delete", "pvc", "nomad-1", "--data")
	n.Do("", "delete", "pvc", "nomad-4", "-n", "nomad-default", "--data")
	n.verdict()
}

// hostVolume runs the program of the node as the plugin of a Nomad client, for a volume of Nomad's namespace default.
func (n *node) hostVolume(operation, id, least, parameters string) (path, refused string) {
	n.T.Helper()
	plugin := filepath.Join(n.T.TempDir(), "csi-volmgr-nomad")
	of := n.program
	if of == "" {
		of = program
	}
	must(n.T, os.Symlink(of, plugin))
	cmd := exec.CommandContext(n.T.Context(), plugin, operation)
	cmd.Env = append(os.Environ(), "DHV_OPERATION="+operation, "DHV_VOLUME_ID="+id, "DHV_NAMESPACE=default", "DHV_CAPACITY_MIN_BYTES="+least,
		"DHV_PARAMETERS="+parameters, "VOLMGR_SOCKET="+n.Socket)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", said.String()
	}
	var answer struct{ Path string }
	if len(out) > 0 {
		must(n.T, json.Unmarshal(out, &answer))
	}
	return answer.Path, ""
}
