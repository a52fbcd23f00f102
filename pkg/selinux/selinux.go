// Package selinux reads what the host's SELinux asks of volumes.
//
// Owns: which volumes are mounted with a label, and where a host says which label
// containers' files have.
//
// Does not: label a file, or choose a pod's label (pkg/resolve).
package selinux

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/pkg/resolve"
)

// Mode says which volumes are mounted with their pod's SELinux label.
type Mode string

// On a host without SELinux all of them are the same: none.
const (
	// Auto: as Kubernetes has it by default, which is On since 1.37.
	Auto Mode = "auto"
	// On: those of every access mode.
	On Mode = "on"
	// OnePod: those that only one pod may have (ReadWriteOncePod), the default before 1.37.
	OnePod Mode = "one-pod"
	// Off: none; labels are left to the container runtime.
	Off Mode = "off"
)

// Modes are the names of all modes.
func Modes() []string { return []string{string(Auto), string(On), string(OnePod), string(Off)} }

// all reports whether volumes of every access mode are.
func (m Mode) all() bool { return m == Auto || m == On }

// Where a host shows and configures SELinux (selinux(8)).
const (
	mountPoint = "/sys/fs/selinux"
	configDir  = "/etc/selinux"
)

// Read returns what the host's SELinux asks for; nothing where it has none.
func Read(mode Mode) (resolve.SELinux, error) {
	var st unix.Statfs_t
	if mode == Off || unix.Statfs(mountPoint, &st) != nil || st.Type != unix.SELINUX_MAGIC {
		return resolve.SELinux{}, nil
	}
	label, err := containerFileLabel(configDir)
	if err != nil {
		return resolve.SELinux{}, fmt.Errorf("learn the label of containers' files: %w", err)
	}
	return resolve.SELinux{FileLabel: label, AllModes: mode.all()}, nil
}

// containerFileLabel reads the label that the policy in use gives to files of
// containers: file= of its contexts/lxc_contexts. A policy without that file has
// none for containers, and "" says so.
func containerFileLabel(dir string) (string, error) {
	policy, err := setting(filepath.Join(dir, "config"), "SELINUXTYPE")
	if err != nil {
		return "", err
	}
	if policy == "" || policy != filepath.Base(policy) {
		return "", fmt.Errorf("%s: SELINUXTYPE: found %q, want the name of a policy", filepath.Join(dir, "config"), policy)
	}
	path := filepath.Join(dir, policy, "contexts/lxc_contexts")
	label, err := setting(path, "file")
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err == nil && strings.Count(label, ":") < 3 {
		err = fmt.Errorf("%s: file: found %q, want a label (user:role:type:level)", path, label)
	}
	return label, err
}

// setting returns the value of "key = value", quoted or not; "" where it is not there.
func setting(path, key string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		k, v, ok := strings.Cut(lines.Text(), "=")
		if ok && strings.TrimSpace(k) == key {
			return strings.Trim(strings.TrimSpace(v), `"`), nil
		}
	}
	return "", lines.Err()
}
