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

// The example starts, stops, and starts again with its data, even after its volume was removed,
// since its reclaim policy is Retain.
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
	if pvs := r.Do("", "get", "pv"); !strings.Contains(pvs, "default/shop-data") || r.called("DeleteVolume") != 0 {
		t.Errorf("reclaim is Retain, and the data is not listed:\n%s", pvs)
	}
	compose("up", "-d")
	r.Eventually("the database to start with what was retained", func() bool {
		return r.run("docker", "exec", "shop_db_1", "cat", "/var/lib/postgresql/data/log").Stdout == "start\nstart\nstart\n"
	})
	compose("down")
	r.nothingMounted()
}
