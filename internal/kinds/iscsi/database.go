package iscsi

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/internal/kinds/disk"
)

func shortHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}

// databases returns the directories of open-iscsi's records: Debian's and SUSE's, and
// Fedora's.
func databases() []string { return []string{"/etc/iscsi", "/var/lib/iscsi"} }

// ErrNoRecord means that open-iscsi's database lacks the record that iscsiadm just
// made.
var ErrNoRecord = errors.New("no such record in open-iscsi's database")

// nodeRecords returns the record files of a target at a portal. After a discovery, the
// path contains the portal group's number, which the target chooses, and there is a
// file per interface. A record that iscsiadm made without discovery is a single file
// (open-iscsi 2.1.8).
func nodeRecords(dbs []string, t target, p portal) (files []string) {
	for _, db := range dbs {
		portal := filepath.Join(db, "nodes", t.iqn, p.host+","+p.port)
		discovered, _ := filepath.Glob(filepath.Join(portal+",*", t.iface)) // the pattern is well-formed
		for _, file := range append(discovered, portal) {
			if st, err := os.Lstat(file); err == nil && st.Mode().IsRegular() {
				files = append(files, file)
			}
		}
	}
	return files
}

// discoveryRecords returns the record files of discovery at a portal.
func discoveryRecords(dbs []string, p portal) (files []string) {
	for _, db := range dbs {
		dir := filepath.Join(db, "send_targets", p.host+","+p.port)
		for _, file := range []string{filepath.Join(dir, "st_config"), dir} {
			if st, err := os.Lstat(file); err == nil && st.Mode().IsRegular() {
				files = append(files, file)
			}
		}
	}
	return files
}

// hasIface reports whether there is a record of the interface of a target, or may be one.
func hasIface(dbs []string, t target) bool {
	return slices.ContainsFunc(dbs, func(db string) bool {
		_, err := os.Lstat(filepath.Join(db, "ifaces", t.iface))
		return !errors.Is(err, os.ErrNotExist)
	})
}

// setValues sets values in each of the record files.
func setValues(files []string, values map[string]string) error {
	if len(files) == 0 {
		return ErrNoRecord
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := disk.WriteFile(file, withValues(b, values)); err != nil {
			return err
		}
	}
	return nil
}

const endOfRecord = "# END RECORD"

// withValues returns record with the given values replaced or added.
func withValues(record []byte, values map[string]string) []byte {
	var b strings.Builder
	add := func() {
		for _, name := range slices.Sorted(maps.Keys(values)) {
			fmt.Fprintf(&b, "%s = %s\n", name, values[name])
		}
		values = nil
	}
	replaced := maps.Clone(values)
	for line := range strings.Lines(string(record)) {
		name, _, _ := strings.Cut(line, "=")
		if _, ok := replaced[strings.TrimSpace(name)]; ok {
			continue
		}
		if strings.TrimSpace(line) == endOfRecord {
			add()
		}
		b.WriteString(line)
	}
	add()
	return []byte(b.String())
}

// chap returns the secret's values for a record, and the authentication method. prefix
// is node.session.auth or discovery.sendtargets.auth.
func chap(secret map[string]string, prefix string) (map[string]string, error) {
	values := map[string]string{prefix + ".authmethod": "CHAP"}
	for _, key := range []string{"username", "password", "username_in", "password_in"} {
		name := prefix + "." + key
		value, ok := secret[name]
		if !ok && strings.HasSuffix(key, "_in") {
			continue // the target need not authenticate itself
		}
		if value == "" || len(value) > 255 || strings.ContainsFunc(value, func(c rune) bool { return c < ' ' || c == 0x7f }) {
			return nil, fmt.Errorf("the secret's %s is missing, empty, longer than 255 bytes or has control characters", name)
		}
		values[name] = value
	}
	return values, nil
}
