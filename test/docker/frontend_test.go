//go:build docker

package docker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
)

// What engines do to every volume of the plugin reaches their own alone: podman imports the volumes that the plugin
// lists and prunes those without a container, and clean-up scripts remove what Docker calls dangling.
func TestEnginesHaveTheirOwnVolumes(t *testing.T) {
	engines(t, func(t *testing.T, r *rig, engine string) {
		paths := map[string]string{}
		for name, front := range map[string]string{"nomad-7f3a": "nomad", "default/data": "mount"} {
			_, err := r.API.CreateNamed(t.Context(), server.NamedRequest{
				Name: name, FrontEnd: front, Options: map[string]string{"size": "64Mi", "reclaim": "Delete"}, Standing: true,
			})
			if err != nil {
				t.Fatal(err)
			}
			if paths[name], err = r.API.MountNamed(t.Context(), front, name); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(paths[name], "f"), []byte(name), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r.volumeCreate(engine, "db", "size=64Mi")
		if engine == "podman" {
			r.podman("volume", "reload")
		}
		if got := r.must(engine, "volume", "ls", "-q"); got != "db" {
			t.Errorf("%s lists %q, want db", engine, got)
		}
		if engine == "podman" {
			r.podman("volume", "prune", "-f")
		} else {
			r.docker(append([]string{"volume", "rm"}, strings.Fields(r.docker("volume", "ls", "-q", "--filter", "dangling=true"))...)...)
			r.refused("such volume: default/data", engine, "volume", "rm", "default/data")
		}
		r.refused("Nomad's volume 7f3a", engine, r.createArgs("nomad-7f3a")...)
		r.refused("such volume", engine, "volume", "inspect", "nomad-7f3a")
		for name, path := range paths {
			if got, err := os.ReadFile(filepath.Join(path, "f")); err != nil || string(got) != name {
				t.Errorf("volume %s of another front end: %q, %v", name, got, err)
			}
			r.Do("", "volume", "remove", name)
		}
		r.nothingMounted()
	})
}
