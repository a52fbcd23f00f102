//go:build docker

package docker

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// When dockerd starts, it asks for all volumes that it knows. If csi-volmgr is not running, dockerd
// neither forgets the volume nor makes a local one in its place, and starting a container fails and
// says why. So it is when csi-volmgr is killed while dockerd asks.
func TestEngineStartsBeforeThePlugin(t *testing.T) {
	r := newRig(t)
	r.startDocker()
	r.volumeCreate("docker", "db", "size=16Mi")
	r.docker("run", "--name", "keeps", "-v", "db:/data", busybox, "sh", "-c", "echo kept > /data/f")
	if err := r.dockerd.Ask(); err != nil {
		t.Fatal(err)
	}
	r.daemon.Kill()
	r.startDocker() // it does not wait for plugins
	r.refused(`error while checking if volume "db" exists in driver "csi"`, "docker", "start", "keeps")
	r.startDaemon()
	r.up()
	if got := r.docker("volume", "inspect", "--format", "{{.Driver}}", "db"); got != r.plugin {
		t.Errorf("the volume's driver is %s, want %s", got, r.plugin)
	}
	if got := r.docker("run", "--rm", "-v", "db:/data", busybox, "cat", "/data/f"); got != "kept" {
		t.Errorf("got %q", got)
	}
	r.daemon.Crash() // it restarts while dockerd asks
	look := []string{"run", "--rm", "-v", "db:/data", busybox, "cat", "/data/f"}
	// dockerd repeats what it asked, but without the name if the connection broke after that: then it fails.
	switch got := r.run("docker", look...); {
	case got.Code == 0 && strings.TrimSpace(got.Stdout) == "kept":
	case got.Code != 0 && strings.Contains(got.Stderr, `error while checking if volume "db" exists`):
	default:
		t.Errorf("while csi-volmgr is restarted: %+v", got)
	}
	r.up()
	if got := r.docker(look...); got != "kept" {
		t.Errorf("after csi-volmgr was restarted: got %q", got)
	}
}

// The driver takes longer than podman waits: the repeated command succeeds, and the driver was
// called once.
func TestDriverIsSlowerThanPodmanWaits(t *testing.T) {
	r := newRig(t)
	r.startPodman()
	r.volumeCreate("podman", "warm", "size=16Mi")
	r.pauseDriver(8 * time.Second)
	r.refused("context deadline exceeded", "podman", r.createArgs("db", "size=16Mi")...)
	r.Eventually("the second podman volume create to succeed", func() bool {
		return r.run("podman", r.createArgs("db", "size=16Mi")...).Code == 0
	})
	r.Eventually("both volumes to be created", func() bool { return r.called("CreateVolume") >= 2 })
	r.pauseDriver(8 * time.Second)
	r.refused("context deadline exceeded", "podman", "run", "--rm", "-v", "db:/data", busybox, "sync")
	r.Eventually("the second podman run to succeed", func() bool {
		return r.run("podman", "run", "--rm", "-v", "db:/data", busybox, "sync").Code == 0
	})
	if created, staged := r.called("CreateVolume"), r.called("NodeStageVolume"); created != 2 || staged != 1 {
		t.Errorf("two volumes were created by %d calls, one was staged by %d", created, staged)
	}
}

// Docker waits for two minutes. If a driver takes three, the repeated command finds the volume. The
// test mostly waits, so it runs in parallel.
func TestDriverIsSlowerThanDockerWaits(t *testing.T) {
	t.Parallel()
	r := newRigOf(t, setup{plugin: "slow", program: program})
	r.startDocker()
	r.pauseDriver(3 * time.Minute)
	r.refused("VolumeDriver.Create", "docker", r.createArgs("db", "size=16Mi")...)
	r.docker(r.createArgs("db", "size=16Mi")...)
	r.docker("run", "--rm", "-v", "db:/data", busybox, "sync")
	if created, staged := r.called("CreateVolume"), r.called("NodeStageVolume"); created != 1 || staged != 1 {
		t.Errorf("one volume was created by %d calls and staged by %d", created, staged)
	}
}

// pauseDriver stops the process of the local driver for the given time.
func (r *rig) pauseDriver(d time.Duration) {
	r.T.Helper()
	pid := r.driver.Pid()
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		r.T.Fatal(err)
	}
	time.AfterFunc(d, func() { unix.Kill(pid, unix.SIGCONT) })
}

// The plugin refuses wrong input with an error that the engine shows in full.
func TestBadInputIsShownWhole(t *testing.T) {
	engines(t, func(t *testing.T, r *rig, engine string) {
		for _, c := range []struct {
			name    string
			options []string
			words   string
		}{
			{"Upper", nil, "Upper"},
			{"db", []string{"sise=1Gi"}, "option sise"},
			{"db", []string{"size=much"}, `option size: found "much", want a quantity such as 1Gi`},
			{"db", []string{"class=none"}, "StorageClass none not found; there are: local"},
			{"db", []string{"claim=data", "size=1Gi"}, "option"},
			{"db", []string{"claim=data"}, "claim default/data not found"},
			{"db", []string{"driver=x.example"}, "option"},
			{"db", []string{"reclaim=Burn"}, "want Retain or Delete"},
		} {
			r.refused(c.words, engine, r.createArgs(c.name, c.options...)...)
		}
		if got := r.must(engine, "volume", "ls", "-q"); got != "" {
			t.Errorf("after errors there are volumes: %s", got)
		}
	})
}

// Neither engine removes a volume that a container or a pod uses; the data stays.
func TestRemovalOfWhatIsInUseIsRefused(t *testing.T) {
	r := newRig(t)
	r.startDocker()
	r.startPodman()
	r.volumeCreate("docker", "db", "size=16Mi")
	r.docker("run", "-d", "--name", "user", "-v", "db:/data", busybox, "sh", "-c", "echo kept > /data/f; sleep 1000")
	r.podman("volume", "reload") // so that podman sees the volume
	r.refused("in use", "docker", "volume", "rm", "db")
	r.refused("conflict", "podman", "volume", "rm", "db")
	if got := r.docker("exec", "user", "cat", "/data/f"); got != "kept" {
		t.Errorf("got %q", got)
	}
	r.docker("rm", "-f", "user")
	r.Apply(`apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - {name: main, image: none, volumeMounts: [{name: data, mountPath: /data}]}
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: db}}
`)
	r.Mounted("web")
	r.refused("pod default/web", "docker", "volume", "rm", "db")
	r.DeletePods("web")
	r.nothingMounted()
	r.docker("volume", "rm", "db")
	pvs := r.Do("", "get", "pv")
	if !strings.Contains(pvs, "Released") && !strings.Contains(pvs, "Retain") {
		t.Errorf("the storage of the removed volume is not listed:\n%s", pvs)
	}
}
