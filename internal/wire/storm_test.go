package wire

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// helperCount starts helpers of a node and counts them.
type helperCount struct {
	mu      sync.Mutex // guards started
	started []*exec.Cmd
}

func (h *helperCount) command() *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", "helper")
	cmd.Stderr = os.Stderr
	h.mu.Lock()
	defer h.mu.Unlock()
	h.started = append(h.started, cmd)
	return cmd
}

// processor returns how long the helpers, which must have ended, used a processor.
func (h *helperCount) processor() (sum time.Duration) {
	for _, cmd := range h.started {
		if s := cmd.ProcessState; s != nil {
			sum += s.UserTime() + s.SystemTime()
		}
	}
	return sum
}

// busyMachine runs two loops a core, of the same priority as the test, until it ends.
func busyMachine(t *testing.T) {
	t.Helper()
	for range 2 * runtime.NumCPU() {
		cmd := exec.Command("sh", "-c", "while :; do :; done")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
}

// removePods mounts a volume for each of count pods, and returns how long the removal of all takes, and how much
// of a processor this process uses for it.
func removePods(t *testing.T, c Config, count int) (took, own time.Duration) {
	t.Helper()
	n, stop := start(t, c)
	defer stop()
	var text strings.Builder
	for i := range count {
		fmt.Fprintf(&text, `---
apiVersion: v1
kind: Pod
metadata: {name: p%[1]d, uid: u%[1]d}
spec:
  containers: [{name: c, image: i, volumeMounts: [{name: v, mountPath: /v}]}]
  volumes: [{name: v, emptyDir: {medium: Memory}}]
`, i)
	}
	apply(t, n, text.String())
	for i := range count {
		if err := n.manager.WaitForAttachAndMount(t.Context(), state.PodUID(fmt.Sprintf("u%d", i))); err != nil {
			t.Fatal(err)
		}
	}
	began, used := time.Now(), processorOf(t)
	var calls sync.WaitGroup
	for i := range count {
		calls.Go(func() {
			if err := n.DeletePod(t.Context(), "default", fmt.Sprintf("p%d", i)); err != nil {
				t.Error(err)
			}
			if err := n.manager.WaitForUnmount(t.Context(), state.PodUID(fmt.Sprintf("u%d", i))); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	return time.Since(began), processorOf(t) - used
}

// processorOf returns how long this process has used a processor.
func processorOf(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// On a busy machine a helper takes long to start and its calls take long to return, since both wait for a
// processor. That starts no further helpers, which would wait for the same processors: the removal of 500 pods
// starts few, which use little of a processor, and takes at most twice as long as without helpers. What else the
// machine does may slow down a removal, so one of several suffices.
func TestABusyMachineStartsFewHelpers(t *testing.T) {
	const (
		pods   = 500
		most   = 8
		rounds = 4
	)
	busyMachine(t)
	for round := 1; ; round++ {
		helpers := &helperCount{}
		c := dirs(t)
		c.Helper = helpers.command
		apart, own := removePods(t, c, pods)
		here, _ := removePods(t, dirs(t), pods)
		t.Logf("%d pods removed in %v, without helpers in %v; %d helpers used %v of a processor, this process %v", pods, apart,
			here, len(helpers.started), helpers.processor(), own)
		if len(helpers.started) > most {
			t.Errorf("%d helpers started, want at most %d", len(helpers.started), most)
		}
		if helpers.processor() > own {
			t.Errorf("the helpers used %v of a processor, this process %v", helpers.processor(), own)
		}
		if apart <= 2*here {
			return
		}
		if round == rounds {
			t.Fatalf("%v, want at most twice %v", apart, here)
		}
	}
}
