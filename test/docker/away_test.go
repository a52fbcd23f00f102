//go:build docker

package docker

import "testing"

// Without its driver, a volume cannot be created: both engines say so, with the next command, and nothing is left.
func TestCreateWithoutADriver(t *testing.T) {
	engines(t, func(t *testing.T, r *rig, engine string) {
		r.driver.Crash()
		r.Eventually("csi-volmgr to see that its driver is gone", func() bool {
			drivers, err := r.API.Drivers(t.Context())
			return err == nil && len(drivers) > 0 && !drivers[len(drivers)-1].Up
		})
		r.refused("driver local.csi-volmgr.dev is not registered; no volume was made; put local-driver: true",
			engine, r.createArgs("db")...)
		if left := r.must(engine, "volume", "ls", "-q"); left != "" {
			t.Errorf("after the failure there are %q", left)
		}
		if all, err := r.API.NamedVolumes(t.Context()); err != nil || len(all) != 0 {
			t.Errorf("csi-volmgr has %v, %v", all, err)
		}
	})
}

// While a driver takes its time to make a volume, dockerd lists the others.
func TestListDuringASlowCreate(t *testing.T) {
	r := newRig(t)
	r.startDocker()
	r.volumeCreate("docker", "old", "size=16Mi")
	cmd := r.command("docker", r.createArgs("new", "size=16Mi")...)
	r.driver.Paused(func() {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		r.Eventually("csi-volmgr to be asked for the volume", func() bool {
			all, err := r.API.NamedVolumes(t.Context())
			return err == nil && len(all) == 2
		})
		if got := r.docker("volume", "ls", "-q"); got != "old" {
			t.Errorf("listed: %q", got)
		}
	})
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if got := r.docker("volume", "ls", "-q"); got != "new\nold" {
		t.Errorf("listed after it is made: %q", got)
	}
}
