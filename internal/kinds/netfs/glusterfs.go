package netfs

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/csi-volmgr/csi-volmgr/internal/kinds/program"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// GlusterFS is the kind of a volume of GlusterFS servers. Kubernetes supported it until
// 1.25.
const GlusterFS = kind.GlusterFS

// GlusterFSLog is the log file of the processes that serve GlusterFS mounts. All share
// one file, which the package's logrotate configuration covers.
const GlusterFSLog = "/var/log/glusterfs/csi-volmgr.log"

// glusterFS is a volume's configuration as package resolve writes it.
type glusterFS struct {
	Servers []string `json:"servers"` // IP addresses of servers that know the volume
	Path    string   `json:"path"`    // the volume's name, optionally with a directory in it
}

// GlusterFSCommand returns the mount.glusterfs command for a volume. It asks one server
// after another for the volume.
//
// mount.glusterfs is a shell script that quotes nothing, so no argument may contain a
// character that is special to a shell.
func GlusterFSCommand(spec state.Spec, m state.Mount, target string) (program.Command, error) {
	var src glusterFS
	if err := json.Unmarshal(spec.Config, &src); err != nil {
		return program.Command{}, fmt.Errorf("glusterfs: %w: %w", ErrSource, err)
	}
	bad := func(field, found, want string) (program.Command, error) {
		return program.Command{}, fmt.Errorf("glusterfs.%s: found %.64q, want %s: %w", field, found, want, ErrSource)
	}
	if len(src.Servers) == 0 {
		return bad("endpoints", "", "the addresses of at least one server")
	}
	first, six := []string{"log-level=WARNING", "log-file=" + GlusterFSLog}, true
	for _, s := range src.Servers {
		a, err := netip.ParseAddr(s)
		if err != nil || a.Zone() != "" {
			return bad("endpoints", s, "IP addresses")
		}
		six = six && a.Is6()
	}
	if six { // mount.glusterfs does not try IPv6 by itself
		first = append(first, "xlator-option=transport.address-family=inet6")
	}
	name := strings.TrimPrefix(src.Path, "/")
	if slices.ContainsFunc(strings.Split(name, "/"), func(s string) bool { return !IsName(s) || s == "." || s == ".." }) {
		return bad("path", src.Path, "a volume's name, and a directory of it, of letters, digits, '.', '-' and '_'")
	}
	for i, o := range spec.MountFlags {
		if !isWord(o) || o[0] == '-' {
			return bad(fmt.Sprintf("mountOptions[%d]", i), keyOf(o), "letters, digits and the characters . - _ / : = , + %")
		}
	}
	for o := range words(spec.MountFlags) {
		if file, ok := strings.CutPrefix(o, "log-file="); ok &&
			(path.Clean(file) != file || path.Dir(file) != path.Dir(GlusterFSLog)) {
			return bad("mountOptions", o, "a log-file in "+path.Dir(GlusterFSLog)+", since root writes it")
		}
	}
	if !isWord(target) {
		return program.Command{}, fmt.Errorf("glusterfs: the path %.200q has a character that mount.glusterfs would take "+
			"for more than itself: %w", target, ErrSource)
	}
	options, err := Options(spec, m, first...)
	if err != nil {
		return program.Command{}, err
	}
	return program.Command{
		Name: "mount.glusterfs", Args: []string{strings.Join(src.Servers, ",") + ":/" + name, target, "-o", options},
		Packages: "glusterfs-client (Debian, Ubuntu) or glusterfs-fuse (Fedora)", Key: target,
	}, nil
}

// isWord reports whether a shell reads s as one word without special characters.
func isWord(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return c > unicode.MaxASCII || !unicode.IsLetter(c) && !unicode.IsDigit(c) && !strings.ContainsRune(".-_/:=,+%~", c)
	})
}
