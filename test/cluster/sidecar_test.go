//go:build cluster

package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// sidecar is a program of kubernetes-csi between Kubernetes and a driver's Controller
// service. It is restarted whenever it ends, as a kubelet would do, since it ends by itself
// when its driver does.
type sidecar struct {
	log, binary string
	env, args   []string

	mu      sync.Mutex // guards the fields below
	now     *server
	stopped bool
	err     error // why the last restart failed
}

// startSidecar runs a sidecar with an administrator's identity until the test ends. Its log
// and its kubeconfig are in dir; env is added to its environment.
func startSidecar(t *testing.T, dir, name string, env []string, args ...string) *sidecar {
	t.Helper()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	must(t, writeKubeconfig(kubeconfig, control.admin, control.path("ca.crt")))
	s := &sidecar{
		log: filepath.Join(dir, name+".log"), binary: filepath.Join(sidecars, name), env: env,
		args: append([]string{"--kubeconfig=" + kubeconfig, "--kube-api-qps=200", "--kube-api-burst=400", "--v=3"}, args...),
	}
	must(t, s.start())
	t.Cleanup(func() {
		s.stop()
		if err := s.failure(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			text, _ := os.ReadFile(s.log)
			lines := strings.Split(string(text), "\n")
			t.Logf("end of the log of %s:\n%s", name, strings.Join(lines[max(0, len(lines)-40):], "\n"))
		}
	})
	return s
}

// start starts the sidecar, unless the test is over.
func (s *sidecar) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil
	}
	now, err := control.launch(s.log, s.env, s.binary, s.args...)
	if err != nil {
		s.err = err
		return err
	}
	s.now = now
	go func() {
		<-now.done
		_ = s.start()
	}()
	return nil
}

// kill kills the sidecar, which is then restarted.
func (s *sidecar) kill() {
	s.mu.Lock()
	now := s.now
	s.mu.Unlock()
	_ = now.cmd.Process.Kill()
	<-now.done
}

func (s *sidecar) stop() {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	s.kill()
}

func (s *sidecar) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}
