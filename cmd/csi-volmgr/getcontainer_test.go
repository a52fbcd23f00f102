package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
)

// The templates of examples/podman turn each mount and device into options of podman.
func TestPodmanIsGivenTheOptionsOfMounts(t *testing.T) {
	script, err := os.ReadFile("../../examples/podman/run.sh")
	if err != nil {
		t.Fatal(err)
	}
	items := []server.ContainerMount{
		{HostPath: "/a", ContainerPath: "/A", Propagation: "rprivate", MountOptions: []string{"nodev", "noexec"}},
		{HostPath: "/b", ContainerPath: "/B", ReadOnly: true, Propagation: "rslave", MountOptions: []string{}},
		{HostPath: "/dev/c", ContainerPath: "/dev/C", Device: true, Permissions: "mrw", MountOptions: []string{}},
	}
	var out bytes.Buffer
	p := &program{stdout: &out}
	for line := range strings.Lines(string(script)) {
		if _, template, ok := strings.Cut(line, "$(options '"); ok {
			template, _, _ = strings.Cut(template, "')")
			if err := p.document(server.List[server.ContainerMount]{Items: items}, "jsonpath="+template); err != nil {
				t.Errorf("%s: %v", template, err)
			}
		}
	}
	want := `--mount=type=bind,src=/a,dst=/A,ro=false,bind-propagation=rprivate,nodev,noexec
--mount=type=bind,src=/b,dst=/B,ro=true,bind-propagation=rslave
--device=/dev/c:/dev/C:mrw
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}
