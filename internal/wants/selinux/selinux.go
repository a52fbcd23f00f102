// Package selinux reads from the host's SELinux policy how volumes must be labelled.
//
// It owns which volumes are mounted with a label, and where a host configures the label
// of containers' files.
//
// It does not label files or choose a pod's label (internal/wants/resolve).
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

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
)

// Mode says which volumes are mounted with their pod's SELinux label.
type Mode string

// The modes. On a host without SELinux all of them select no volumes.
const (
	// Auto follows Kubernetes' default, which is On since 1.37.
	Auto Mode = "auto"
	// On selects volumes of every access mode.
	On Mode = "on"
	// OnePod selects ReadWriteOncePod volumes, Kubernetes' default before 1.37.
	OnePod Mode = "one-pod"
	// Off selects no volumes: the container runtime labels their files.
	Off Mode = "off"
)

// Modes returns the names of all modes.
func Modes() []string { return []string{string(Auto), string(On), string(OnePod), string(Off)} }

// all reports whether the mode selects volumes of every access mode.
func (m Mode) all() bool { return m == Auto || m == On || m == "" }

// Where a host shows and configures SELinux (selinux(8)).
const (
	mountPoint = "/sys/fs/selinux"
	configDir  = "/etc/selinux"
)

// Read returns the SELinux configuration of the host; the zero value if mode is Off or
// the host has no SELinux.
func Read(mode Mode) (resolve.SELinux, error) {
	var st unix.Statfs_t
	if mode == Off || unix.Statfs(mountPoint, &st) != nil || uint32(st.Type) != unix.SELINUX_MAGIC {
		return resolve.SELinux{}, nil
	}
	label, err := containerFileLabel(configDir)
	if err != nil {
		return resolve.SELinux{}, fmt.Errorf("read the label of containers' files: %w", err)
	}
	return resolve.SELinux{FileLabel: label, AllModes: mode.all()}, nil
}

// containerFileLabel returns the label that the current policy gives to files of
// containers: file= in its contexts/lxc_contexts. It returns "" if the policy has no such
// file, and so no label for containers.
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

// setting returns the value of "key = value" in a file, without quotes, or "" if the key is missing.
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
