//go:build docker

package docker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// override replaces the image, which a machine without a network and a registry cannot get. Like
// PostgreSQL, its program refuses a directory that is not empty and has no database.
const override = `version: "3.8"
services:
  db:
    image: ` + busybox + `
    network_mode: none
    stop_grace_period: 1s
    command:
    - sh
    - -c
    - cd /var/lib/postgresql/data; test -e PG_VERSION || { test -z "$$(ls -A)" && echo 16 > PG_VERSION; }; echo start >> log; sleep 1000
`

// external names a restored volume. docker-compose 1.29 compares the options of its own volumes with those that dockerd
// remembers, which has none of a restored one.
const external = `    volumes: ["data:/var/lib/postgresql/data"]
volumes:
  data: {external: true, name: shop_data}
`

// The example starts, stops, and starts again with its data. After its volume was removed it starts on an empty one, and
// the data of the removed one comes back by its name.
func TestComposeExample(t *testing.T) {
	r := newRig(t)
	r.startDocker()
	example, err := filepath.Abs("../../examples/compose/docker-compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.Path("override.yml"), []byte(override), 0o600); err != nil {
		t.Fatal(err)
	}
	compose := func(args ...string) string {
		t.Helper()
		return r.must("docker-compose", append([]string{"-p", "shop", "-f", example, "-f", r.Path("override.yml")}, args...)...)
	}
	compose("up", "-d")
	r.Eventually("the database to start", func() bool {
		return r.run("docker", "exec", "shop_db_1", "cat", "/var/lib/postgresql/data/PG_VERSION").Stdout == "16\n"
	})
	compose("down")
	compose("up", "-d")
	r.Eventually("the database to start again", func() bool {
		return r.run("docker", "exec", "shop_db_1", "cat", "/var/lib/postgresql/data/log").Stdout == "start\nstart\n"
	})
	if n := r.called("CreateVolume"); n != 1 {
		t.Errorf("CreateVolume was called %d times", n)
	}
	compose("down")
	r.nothingMounted()
	r.docker("volume", "prune", "-f") // dockerd prunes only volumes of its own driver
	if left := r.docker("volume", "ls", "-q"); left != "shop_data" {
		t.Errorf("after a prune there are %q", left)
	}
	compose("down", "-v")
	if left := r.docker("volume", "ls", "-q"); left != "" {
		t.Errorf("after down -v there are %q", left)
	}
	kept, err := r.API.KeptNamed(t.Context())
	if err != nil || len(kept) != 1 || kept[0].Was != "shop_data" || r.called("DeleteVolume") != 0 {
		t.Fatalf("reclaim is Retain, and kept is %+v, %v", kept, err)
	}
	if pvs := r.Do("", "get", "pv"); !strings.Contains(pvs, "default/"+kept[0].Name) {
		t.Errorf("the kept data is not listed:\n%s", pvs)
	}
	compose("up", "-d")
	r.Eventually("the database to start anew", func() bool {
		return r.run("docker", "exec", "shop_db_1", "cat", "/var/lib/postgresql/data/log").Stdout == "start\n"
	})
	if out := r.CLI("", "volume", "restore", kept[0].Name); out.Code == 0 || !strings.Contains(out.Stderr, "volume shop_data exists") {
		t.Errorf("restored to a name that is taken: %s%s", out.Stdout, out.Stderr)
	}
	compose("down", "-v")
	r.nothingMounted()
	r.Do("", "volume", "restore", kept[0].Name)
	if err := os.WriteFile(r.Path("restored.yml"), []byte(override+external), 0o600); err != nil {
		t.Fatal(err)
	}
	r.must("docker-compose", "-p", "shop", "-f", r.Path("restored.yml"), "up", "-d")
	r.Eventually("the database to start with what was restored", func() bool {
		return r.run("docker", "exec", "shop_db_1", "cat", "/var/lib/postgresql/data/log").Stdout == "start\nstart\nstart\n"
	})
	r.must("docker-compose", "-p", "shop", "-f", r.Path("restored.yml"), "down")
	r.nothingMounted()
}
