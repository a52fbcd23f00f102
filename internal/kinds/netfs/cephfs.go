package netfs

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/kinds/program"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// CephFS is the kind of a directory of a Ceph file system that is mounted with a secret
// in a file of the node. Volumes with a Secret object belong to ceph-csi.
const CephFS = kind.CephFS

// The Kubernetes API's defaults.
const defaultUser, defaultSecretFile = "admin", "/etc/ceph/user.secret"

// CephFSCommand returns the mount.ceph command for a volume. mount.ceph reads the
// secret from its file.
func CephFSCommand(spec state.Spec, m state.Mount, target string) (program.Command, error) {
	var src corev1.CephFSVolumeSource
	if err := json.Unmarshal(spec.Config, &src); err != nil {
		return program.Command{}, fmt.Errorf("cephfs: %w: %w", ErrSource, err)
	}
	bad := func(field, found, want string) (program.Command, error) {
		return program.Command{}, fmt.Errorf("cephfs.%s: found %.64q, want %s: %w", field, found, want, ErrSource)
	}
	if len(src.Monitors) == 0 {
		return bad("monitors", "", "at least one")
	}
	for _, monitor := range src.Monitors {
		if !isMonitor(monitor) {
			return bad("monitors", monitor, "host names or IP addresses, each with a port or none")
		}
	}
	src.Path, src.User, src.SecretFile = cmp.Or(src.Path, "/"), cmp.Or(src.User, defaultUser),
		cmp.Or(src.SecretFile, defaultSecretFile)
	if !isPath(src.Path) {
		return bad("path", src.Path, "an absolute path without '..', commas and control characters")
	}
	if !IsName(src.User) {
		return bad("user", src.User, "letters, digits, '.', '-' and '_'")
	}
	if !isPath(src.SecretFile) {
		return bad("secretFile", src.SecretFile, "an absolute path without '..', commas and control characters")
	}
	for o := range words(spec.MountFlags) {
		if key, _, _ := strings.Cut(o, "="); key == "conf" || key == "secretfile" {
			return bad("mountOptions", o,
				"no option by which mount.ceph reads a file of the node; secretFile names the secret's")
		}
	}
	options, err := Options(spec, m, "name="+src.User, "secretfile="+src.SecretFile)
	if err != nil {
		return program.Command{}, err
	}
	return program.Command{
		Name: "mount.ceph", Args: []string{strings.Join(src.Monitors, ",") + ":" + src.Path, target, "-o", options},
		Packages: "ceph-common", Key: target,
	}, nil
}

// isPath reports whether p is an absolute path that is a single argument and a single
// mount option.
func isPath(p string) bool {
	return path.IsAbs(p) && !slices.Contains(strings.Split(p, "/"), "..") && !strings.ContainsFunc(p, func(c rune) bool {
		return c == ',' || unicode.IsControl(c)
	})
}

// IsName reports whether s consists of letters, digits and ".-_", and does not start with
// "-". Host names do.
func IsName(s string) bool {
	return s != "" && s[0] != '-' && !strings.ContainsFunc(s, func(c rune) bool {
		return c != '.' && c != '-' && c != '_' && (c > unicode.MaxASCII || !unicode.IsLetter(c) && !unicode.IsDigit(c))
	})
}

func isMonitor(s string) bool {
	if _, err := netip.ParseAddrPort(s); err == nil {
		return true
	}
	if _, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]")); err == nil {
		return true
	}
	host, port, has := strings.Cut(s, ":")
	if has {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return false
		}
	}
	return IsName(host)
}
