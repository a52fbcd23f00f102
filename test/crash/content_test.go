package crash

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
)

// mounted checks that the pod is ready with that many volumes, and that no step is pending.
func (n *node) mounted(pod string, volumes int) error {
	p, err := n.API.Pod(n.ctx(), "default", pod)
	if err != nil {
		return err
	}
	if !p.Ready || len(p.Volumes) != volumes {
		return fmt.Errorf("pod %s is not ready: %+v", pod, p)
	}
	for _, v := range p.Volumes {
		if v.Step != "" {
			return fmt.Errorf("volume %v is at step %s, %s", v.Names, v.Step, v.BlockedBy)
		}
	}
	return nil
}

// noPods checks that the daemon knows no pod and no volume.
func (n *node) noPods() error {
	if err := n.answers(); err != nil {
		return err
	}
	if pods, err := n.API.Pods(n.ctx()); err != nil || len(pods) > 0 {
		return fmt.Errorf("pods are left: %+v, %v", pods, err)
	}
	return n.noVolumes()
}

// content checks that a file in a volume of pod web has the text.
func (n *node) content(volume, file, text string) error {
	at, err := n.hostPath(volume)
	if err != nil {
		return err
	}
	b, err := os.ReadFile(filepath.Join(at, file))
	if err != nil || string(b) != text {
		return fmt.Errorf("%s/%s is %q, %v, want %q", volume, file, b, err, text)
	}
	return nil
}

func (n *node) hostPath(volume string) (string, error) {
	mounts, err := n.API.Mounts(n.ctx(), "default", "web")
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(mounts, func(m server.Mount) bool { return m.Name == volume })
	if i < 0 || mounts[i].HostPath == "" {
		return "", fmt.Errorf("volume %s is not mounted: %+v", volume, mounts)
	}
	return mounts[i].HostPath, nil
}

// writes writes a file into each volume the first time. Later it checks that the files are
// there.
func (n *node) writes(volumes ...string) error {
	if n.written == nil {
		written := map[string]string{}
		for _, v := range volumes {
			at, err := n.hostPath(v)
			if err != nil {
				return err
			}
			written[v] = filepath.Join(at, "f")
		}
		for v, at := range written {
			if err := os.WriteFile(at, []byte("of "+v), 0o600); err != nil {
				return err
			}
		}
		n.written = written
	}
	for _, v := range volumes {
		if at, err := n.hostPath(v); err != nil || filepath.Dir(n.written[v]) != at {
			return fmt.Errorf("volume %s is at %s, %v; it was at %s", v, at, err, n.written[v])
		}
	}
	return n.kept()
}

// kept checks that the files that the test wrote into volumes are there.
func (n *node) kept() error {
	var errs []error
	for v, at := range n.written {
		if b, err := os.ReadFile(at); err != nil || strings.TrimSpace(string(b)) != "of "+v {
			errs = append(errs, fmt.Errorf("%s has %q, %v", at, b, err))
		}
	}
	return errors.Join(errs...)
}
