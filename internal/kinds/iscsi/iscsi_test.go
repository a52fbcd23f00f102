package iscsi_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/journal"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/disk"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/iscsi"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/test/drivertest"
	"github.com/csi-volmgr/csi-volmgr/test/drivertest/disktest"
)

func TestMain(m *testing.M) { drivertest.Main(m) }

const (
	iqn  = "iqn.2024-01.example:t1"
	wwid = "naa.6001405aaaaaaaaaaaaaaaaaaaaaaaaa"
	pod  = state.PodUID("7f3c2a10-0000-4000-8000-000000000001")
)

// exit is the exit code of a program.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit status %d", int(e)) }
func (e exit) ExitCode() int { return int(e) }

// node is a node with open-iscsi and targets.
type node struct {
	*disktest.Node
	db       string
	volumes  []state.Volume
	secret   map[string]string
	dead     map[string]bool     // portals that do not answer
	luns     map[string][]string // devices by "portal lun", which appear with the session
	sessions map[string]int      // by portal
	driver   *iscsi.Driver
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{Node: disktest.New(t), db: t.TempDir(), dead: map[string]bool{}, luns: map[string][]string{}, sessions: map[string]int{}}
	n.Programs["iscsiadm"] = n.iscsiadm
	n.restart()
	return n
}

func (n *node) restart() {
	n.driver = iscsi.New(iscsi.Config{
		Stager: n.Stager(), Volumes: func() []state.Volume { return n.volumes }, Databases: []string{"/nowhere", n.db},
		Secret:     func(context.Context, state.SecretRef) (map[string]string, error) { return n.secret, nil },
		Warn:       slog.New(slog.DiscardHandler).Warn,
		DeviceTime: 100 * time.Millisecond,
	})
}

func after(args []string, flag string) string {
	if i := slices.Index(args, flag); i >= 0 {
		return args[i+1]
	}
	return ""
}

// iscsiadm changes the database and the kernel as open-iscsi's iscsiadm does.
func (n *node) iscsiadm(args []string) error {
	portal, iface := after(args, "-p"), after(args, "-I")
	i := strings.LastIndex(portal, ":")
	dir := ""
	if i >= 0 {
		dir = strings.Trim(portal[:i], "[]") + "," + portal[i+1:]
	}
	record := filepath.Join(n.db, "nodes", iqn, dir)
	switch mode, op := after(args, "-m"), after(args, "-o"); {
	case mode == "discoverydb" && op == "new":
		return n.write(filepath.Join(n.db, "send_targets", dir, "st_config"), "discovery.startup = manual\n")
	case mode == "discoverydb" && op == "delete":
		return os.RemoveAll(filepath.Join(n.db, "send_targets", dir))
	case mode == "discoverydb" && op == "nonpersistent" && n.dead[portal]:
		return exit(4)
	case mode == "node" && op == "new":
		return n.write(record, "# BEGIN RECORD 2.1.8\nnode.name = "+iqn+"\nnode.startup = automatic\n# END RECORD\n")
	case slices.Contains(args, "--login"):
		n.login(portal, iface)
	case slices.Contains(args, "--logout"):
		return n.logout(portal)
	case mode == "node" && op == "delete":
		return os.RemoveAll(record)
	}
	return nil
}

func (n *node) write(path, content string) error {
	return errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600))
}

// login makes the session of a portal appear in sysfs.
func (n *node) login(portal, iface string) {
	id := len(n.sessions) + 1
	n.sessions[portal] = id
	i := strings.LastIndex(portal, ":")
	s, c := fmt.Sprintf("session%d", id), fmt.Sprintf("connection%d:0", id)
	n.Set(iqn, "class", "iscsi_session", s, "targetname")
	n.Set(iface, "class", "iscsi_session", s, "ifacename")
	n.Set(strings.Trim(portal[:i], "[]"), "class", "iscsi_connection", c, "persistent_address")
	n.Set(portal[i+1:], "class", "iscsi_connection", c, "persistent_port")
	host := fmt.Sprintf("host%d", id)
	n.Set("", "class", "scsi_host", host, "scan")
	dir := filepath.Join(n.Sys, "devices", host, s)
	for key, names := range n.luns {
		if p, lun, _ := strings.Cut(key, " "); p == portal {
			for _, name := range names {
				n.Set("", "devices", host, s, fmt.Sprintf("target%d:0:0", id), fmt.Sprintf("%d:0:0:%s", id, lun), "block", name, "uevent")
			}
		}
	}
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.Symlink(dir, filepath.Join(n.Sys, "class", "iscsi_session", s, "device"))); err != nil {
		n.Error(err)
	}
}

func (n *node) logout(portal string) error {
	id, ok := n.sessions[portal]
	if !ok {
		return exit(21)
	}
	delete(n.sessions, portal)
	s := fmt.Sprintf("session%d", id)
	return errors.Join(os.RemoveAll(filepath.Join(n.Sys, "class", "iscsi_session", s)), os.RemoveAll(filepath.Join(n.Sys, "devices", fmt.Sprintf("host%d", id))))
}

// gone removes the device from sysfs and checks that the kernel was told to delete it.
func (n *node) gone(name string) {
	n.Helper()
	if got := n.Attribute("block", name, "device", "delete"); got != "1" {
		n.Errorf("%s: told %q, want it deleted", name, got)
	}
	found, err := filepath.Glob(filepath.Join(n.Sys, "devices", "*", "*", "*", "*", "block", name))
	if err != nil {
		n.Fatal(err)
	}
	for _, dir := range found {
		if err := os.RemoveAll(dir); err != nil {
			n.Fatal(err)
		}
	}
}

func (n *node) volume(name, config string) state.Volume {
	v := n.Volume(iscsi.Kind, name, config, pod)
	n.volumes = append(n.volumes, v)
	return v
}

// forget removes v from the journal.
func (n *node) forget(v state.Volume) {
	n.volumes = slices.DeleteFunc(n.volumes, func(o state.Volume) bool { return o.ID == v.ID })
}

func (n *node) stage(v state.Volume) {
	n.Helper()
	if err := n.driver.Stage(n.Context(), v); err != nil {
		n.Fatal(err)
	}
}

func (n *node) want(what string, want ...string) {
	n.Helper()
	if got := n.Calls(); !slices.Equal(got, want) {
		n.Errorf("%s: run\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func loginCalls(portal string) []string {
	return []string{
		"iscsiadm -m discoverydb -t sendtargets -p " + portal + " -I default -o new",
		"iscsiadm -m discoverydb -t sendtargets -p " + portal + " -I default --discover -o nonpersistent",
		"iscsiadm -m node -T " + iqn + " -p " + portal + " -I default -o new",
		"iscsiadm -m node -T " + iqn + " -p " + portal + " -I default --login",
	}
}

func logoutCalls(portal string) []string {
	return []string{
		"iscsiadm -m node -T " + iqn + " -p " + portal + " -I default --logout",
		"iscsiadm -m node -T " + iqn + " -p " + portal + " -I default -o delete",
		"iscsiadm -m discoverydb -t sendtargets -p " + portal + " -o delete",
	}
}

const (
	mkfs  = "mkfs.ext4 -F -q -m 0 -E nodiscard /dev/sda"
	plain = `{"targetPortal": "192.0.2.1", "iqn": "` + iqn + `", "lun": 0}`
)

// The exact calls for one portal and lun 0, and what the driver writes to sysfs. The
// record neither logs in at boot nor scans for other units.
//
// Items: M11.
func TestCallsOfOneVolume(t *testing.T) {
	n := newNode(t)
	n.Disk(wwid, "sda")
	n.luns["192.0.2.1:3260 0"] = []string{"sda"}
	v := n.volume("data", plain)
	n.stage(v)
	n.want("stage", append(loginCalls("192.0.2.1:3260"), mkfs)...)
	if got := n.Attribute("class", "scsi_host", "host1", "scan"); got != "0 0 0" {
		t.Errorf("scan: told %q", got)
	}
	record, err := os.ReadFile(filepath.Join(n.db, "nodes", iqn, "192.0.2.1,3260"))
	want := "# BEGIN RECORD 2.1.8\nnode.name = " + iqn + "\nnode.session.scan = manual\nnode.startup = manual\n# END RECORD\n"
	if err != nil || string(record) != want {
		t.Errorf("record: %v\n%s\nwant\n%s", err, record, want)
	}
	n.restart()
	n.stage(v)
	n.want("staged again")
	if err := n.driver.Unstage(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	n.gone("sda")
}

// The volume's file system is mounted with the label that its pod requests.
//
// Items: Q05.
func TestAVolumeIsMountedWithItsLabel(t *testing.T) {
	n := newNode(t)
	n.Disk(wwid, "sda")
	n.luns["192.0.2.1:3260 0"] = []string{"sda"}
	n.WantLabel(func(v state.Volume) error { return n.driver.Stage(t.Context(), v) }, n.volume("data", plain))
}

// After a restart, with nothing but the record, Unstage does not remove a disk that a
// process holds. When no process does, it removes the volume's disk and no other.
//
// Items: C33, M15.
func TestUnstageAfterARestartIsFromTheRecord(t *testing.T) {
	n := newNode(t)
	n.Disk(wwid, "sda")
	n.Disk(wwid+"b", "sdb")
	n.luns["192.0.2.1:3260 0"], n.luns["192.0.2.1:3260 1"] = []string{"sda"}, []string{"sdb"}
	v := n.volume("data", plain)
	n.stage(v)
	written, err := journal.EncodeRecord(v)
	if err != nil {
		t.Fatal(err)
	}
	n.restart()
	known, err := journal.DecodeRecord(written)
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := t.TempDir()
	if err := unix.Mount(v.Spec.StagePath, elsewhere, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	if err := n.driver.Unstage(t.Context(), known); !errors.Is(err, disk.ErrInUse) || n.Attribute("block", "sda", "device", "delete") != "" {
		t.Errorf("unstage of a disk that is held: %v", err)
	}
	if err := unix.Unmount(elsewhere, 0); err != nil {
		t.Fatal(err)
	}
	if err := n.driver.Unstage(t.Context(), known); err != nil {
		t.Fatal(err)
	}
	n.gone("sda")
	if got := n.Attribute("block", "sdb", "device", "delete"); got != "" {
		t.Error("the other unit's device is deleted")
	}
}

// Unstage removes the device; it ends the session when no device uses it.
func TestCallsOfUnstage(t *testing.T) {
	n := newNode(t)
	n.Disk(wwid, "sda")
	n.luns["192.0.2.1:3260 0"] = []string{"sda"}
	v := n.volume("data", plain)
	n.stage(v)
	n.Calls()
	stuck := filepath.Join(v.Spec.StagePath, "open")
	f, err := os.Create(stuck)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.driver.Unstage(t.Context(), v); err == nil || len(n.Calls()) != 0 {
		t.Errorf("unstage of a volume in use: %v", err)
	}
	f.Close()
	// The kernel removes the device when told to; the next Unstage finds none.
	if err := n.driver.Unstage(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	n.want("unstage") // a device still exists, so the session stays
	if _, ok := n.sessions["192.0.2.1:3260"]; !ok {
		t.Error("logged out under a device")
	}
}

// Two units of a target share the session. The first Unstage finds the other volume in
// the journal and leaves the session; the last ends it.
//
// Items: M11.
func TestSessionEndsWithItsLastVolume(t *testing.T) {
	n := newNode(t)
	n.Disk(wwid, "sda")
	n.Disk(wwid+"b", "sdb")
	n.luns["192.0.2.1:3260 0"], n.luns["192.0.2.1:3260 1"] = []string{"sda"}, []string{"sdb"}
	a := n.volume("a", plain)
	b := n.volume("b", strings.Replace(plain, `"lun": 0`, `"lun": 1`, 1))
	n.stage(a)
	n.Calls()
	n.stage(b)
	n.want("stage of the second", strings.Replace(mkfs, "sda", "sdb", 1))
	if err := n.driver.Unstage(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	n.want("unstage of the first")
	n.gone("sda")
	n.forget(a)
	if got := n.Attribute("block", "sdb", "device", "delete"); got != "" {
		t.Error("the other unit's device is deleted")
	}
	// The kernel removes the device at once.
	n.Programs["iscsiadm"] = n.iscsiadm
	if _, err := n.Stager().Unmount(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	found, _ := filepath.Glob(filepath.Join(n.Sys, "devices", "*", "*", "*", "*", "block", "sdb"))
	if len(found) != 1 || os.RemoveAll(found[0]) != nil {
		t.Fatal("no device")
	}
	if err := n.driver.Unstage(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	n.want("unstage of the last", logoutCalls("192.0.2.1:3260")...)
	if err := n.driver.Unstage(t.Context(), b); err != nil {
		t.Error(err)
	}
	n.want("unstaged again")
}

// Two volumes name one unit, and the second is about to be mounted: the device stays.
func TestDeviceOfTwoVolumesStays(t *testing.T) {
	n := newNode(t)
	n.Disk(wwid, "sda")
	n.luns["192.0.2.1:3260 0"] = []string{"sda"}
	a, b := n.volume("a", plain), n.volume("b", plain)
	n.stage(a)
	if err := n.driver.Unstage(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if got := n.Attribute("block", "sda", "device", "delete"); got != "" {
		t.Errorf("told %q", got)
	}
	n.forget(a)
	n.stage(b)
}

// The driver uses a session that the operator began and never ends it.
func TestSessionOfTheOperatorStays(t *testing.T) {
	n := newNode(t)
	n.Disk(wwid, "sda")
	n.luns["192.0.2.1:3260 0"] = []string{"sda"}
	n.login("192.0.2.1:3260", "default")
	v := n.volume("data", plain)
	n.stage(v)
	n.want("stage", mkfs)
	if err := n.driver.Unstage(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	n.gone("sda")
	if err := n.driver.Unstage(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	n.want("unstage")
}

// The driver logs in to every portal and gathers their devices. One portal that answers
// is enough, and nothing is left of those that do not.
//
// Items: M11.
func TestSeveralPortals(t *testing.T) {
	n := newNode(t)
	device := n.Disk(wwid, "sda", "sdb")
	n.Programs["multipath"] = func(args []string) error {
		n.Gathered(device, "dm-0", "mpatha", "sda", "sdb")
		return nil
	}
	n.luns["192.0.2.1:3260 0"], n.luns["[2001:db8::1]:3261 0"] = []string{"sda"}, []string{"sdb"}
	n.dead["192.0.2.9:3260"] = true
	v := n.volume("data", `{"targetPortal": "192.0.2.1", "portals": ["192.0.2.9:3260", "[2001:db8::1]:3261", "192.0.2.1:3260"], "iqn": "`+iqn+`", "lun": 0}`)
	n.stage(v)
	n.want("stage", slices.Concat(loginCalls("192.0.2.1:3260"), loginCalls("192.0.2.9:3260")[:2], loginCalls("[2001:db8::1]:3261"),
		[]string{"multipath /dev/sda", strings.Replace(mkfs, "sda", "dm-0", 1)})...)
	if _, err := n.Stager().Unmount(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	n.dead["192.0.2.1:3260"] = true
	n.dead["[2001:db8::1]:3261"] = true
	other := newNode(t)
	other.dead = n.dead
	v = other.volume("data", string(v.Spec.Config))
	if err := other.driver.Stage(t.Context(), v); err == nil {
		t.Error("staged without a portal that answers")
	}
	if err := other.driver.Unstage(t.Context(), v); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(filepath.Join(other.db, "send_targets")); err != nil || len(left) > 0 {
		t.Errorf("records of portals that do not answer are left: %v, %v", left, err)
	}
}

// The driver refuses paths that lead to different disks and writes to neither disk.
func TestPathsOfDifferentDisksAreRefused(t *testing.T) {
	n := newNode(t)
	n.Disk(wwid, "sda")
	n.Disk(wwid+"b", "sdb")
	n.luns["192.0.2.1:3260 0"], n.luns["192.0.2.2:3260 0"] = []string{"sda"}, []string{"sdb"}
	v := n.volume("data", `{"targetPortal": "192.0.2.1", "portals": ["192.0.2.2"], "iqn": "`+iqn+`", "lun": 0}`)
	if err := n.driver.Stage(t.Context(), v); err == nil {
		t.Error("staged")
	}
	for _, call := range n.Calls() {
		if !strings.HasPrefix(call, "iscsiadm") {
			t.Errorf("run %q", call)
		}
	}
}

// Rule 7: CHAP secrets get into the records, which only root can read, and into no
// command line. New secrets replace the old ones.
//
// Items: M11.
// Attacks: C9.
func TestSecretsOfCHAPAreOnNoCommandLine(t *testing.T) {
	n := newNode(t)
	n.Disk(wwid, "sda")
	n.luns["192.0.2.1:3260 0"] = []string{"sda"}
	n.secret = map[string]string{}
	for _, prefix := range []string{"node.session.auth.", "discovery.sendtargets.auth."} {
		for _, key := range []string{"username", "password", "username_in", "password_in"} {
			n.secret[prefix+key] = "canary-" + prefix + key
		}
	}
	v := n.volume("data", `{"targetPortal": "192.0.2.1", "iqn": "`+iqn+`", "lun": 0, "chapAuthSession": true, "chapAuthDiscovery": true}`)
	n.stage(v)
	if calls := strings.Join(n.Calls(), "\n"); strings.Contains(calls, "canary") {
		t.Errorf("run\n%s", calls)
	}
	for file, prefix := range map[string]string{
		filepath.Join("nodes", iqn, "192.0.2.1,3260"):                "node.session.auth.",
		filepath.Join("send_targets", "192.0.2.1,3260", "st_config"): "discovery.sendtargets.auth.",
	} {
		b, err := os.ReadFile(filepath.Join(n.db, file))
		if err != nil {
			t.Fatal(err)
		}
		if st, err := os.Stat(filepath.Join(n.db, file)); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v", file, st.Mode(), err)
		}
		for name, value := range n.secret {
			if got, want := strings.Contains(string(b), name+" = "+value+"\n"), strings.HasPrefix(name, prefix); got != want {
				t.Errorf("%s has %s: %v, want %v", file, name, got, want)
			}
		}
		if !strings.Contains(string(b), prefix+"authmethod = CHAP\n") {
			t.Errorf("%s: no method", file)
		}
	}
	for _, bad := range []string{"", "new\nline", strings.Repeat("x", 256)} {
		other := newNode(t)
		other.secret = map[string]string{"node.session.auth.username": "user", "node.session.auth.password": bad}
		w := other.volume("data", `{"targetPortal": "192.0.2.1", "iqn": "`+iqn+`", "lun": 0, "chapAuthSession": true}`)
		if err := other.driver.Stage(t.Context(), w); err == nil || !strings.Contains(err.Error(), "auth.password is missing, empty, longer") ||
			bad != "" && strings.Contains(err.Error(), bad) {
			t.Errorf("password %.10q: got %v", bad, err)
		}
	}
}

// A volume with its own initiator name has its own interface, which goes with the
// volume.
//
// Items: M11.
func TestInterfaceOfItsOwnForANameOfTheInitiator(t *testing.T) {
	n := newNode(t)
	n.Disk(wwid, "sda")
	n.Disk(wwid+"b", "sdb")
	n.luns["192.0.2.1:3260 0"], n.luns["192.0.2.1:3260 1"] = []string{"sda"}, []string{"sdb"}
	v := n.volume("data", `{"targetPortal": "192.0.2.1", "iqn": "`+iqn+`", "lun": 0, "initiatorName": "iqn.2024-01.example:me"}`)
	n.stage(v)
	calls := n.Calls()
	iface := after(strings.Fields(calls[0]), "-I")
	if !strings.HasPrefix(iface, "csi-volmgr-") || len(calls) != 7 || calls[0] != "iscsiadm -m iface -I "+iface+" -o new" ||
		calls[1] != "iscsiadm -m iface -I "+iface+" -o update -n iface.initiatorname -v iqn.2024-01.example:me" {
		t.Errorf("run %q", calls)
	}
	// Another volume has the same name of the initiator: the interface stays with it.
	other := n.volume("other", `{"targetPortal": "192.0.2.1", "iqn": "`+iqn+`", "lun": 1, "initiatorName": "iqn.2024-01.example:me"}`)
	n.stage(other)
	n.Calls()
	if err := n.driver.Unstage(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	n.want("unstage of the other")
	n.forget(other)
	n.gone("sdb")
	if err := n.driver.Unstage(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	calls = n.Calls()
	if want := "iscsiadm -m iface -I " + iface + " -o delete"; len(calls) == 0 || calls[len(calls)-1] != want {
		t.Errorf("run %q, want %q last", calls, want)
	}
}

// The driver uses a record that the operator's discovery made, and does not make it
// again.
func TestRecordOfADiscoveryIsUsed(t *testing.T) {
	n := newNode(t)
	n.Disk(wwid, "sda")
	n.luns["192.0.2.1:3260 0"] = []string{"sda"}
	record := filepath.Join(n.db, "nodes", iqn, "192.0.2.1,3260,7", "default")
	if err := n.write(record, "node.startup = automatic\n"); err != nil {
		t.Fatal(err)
	}
	n.stage(n.volume("data", plain))
	calls := loginCalls("192.0.2.1:3260")
	n.want("stage", calls[0], calls[1], calls[3], mkfs)
	if b, err := os.ReadFile(record); err != nil || string(b) != "node.session.scan = manual\nnode.startup = manual\n" {
		t.Errorf("record: %q, %v", b, err)
	}
}

// While a device appears, its directory at the session exists before its attributes do:
// the driver waits for them.
func TestDeviceThatIsComingIsWaitedFor(t *testing.T) {
	n := newNode(t)
	n.Disk(wwid, "sda")
	n.luns["192.0.2.1:3260 0"] = []string{"sda"}
	file := filepath.Join(n.Sys, "block", "sda", "device", "wwid")
	if err := os.Rename(file, file+".later"); err != nil {
		t.Fatal(err)
	}
	v := n.volume("data", plain)
	if err := n.driver.Stage(t.Context(), v); err == nil || !strings.Contains(err.Error(), "no device within") {
		t.Errorf("got %v, want that it was waited for", err)
	}
	if err := os.Rename(file+".later", file); err != nil {
		t.Fatal(err)
	}
	n.stage(v)
}

func TestWithoutADeviceTheErrorSaysSo(t *testing.T) {
	n := newNode(t)
	v := n.volume("data", plain)
	if err := n.driver.Stage(t.Context(), v); err == nil || !strings.Contains(err.Error(), "lun 0") {
		t.Errorf("got %v", err)
	}
	if err := n.driver.Unstage(t.Context(), v); err != nil {
		t.Error(err)
	}
	if _, ok := n.sessions["192.0.2.1:3260"]; ok {
		t.Error("the session is left")
	}
}

// C7, C12: the driver refuses what is no portal, name or number before it runs
// anything.
//
// Attacks: C7.
func TestAttackStringsOfASourceAreRefused(t *testing.T) {
	n := newNode(t)
	for _, config := range []string{
		`{}`, `{"targetPortal": "192.0.2.1", "iqn": ""}`,
		`{"targetPortal": "192.0.2.1", "iqn": "--help"}`, `{"targetPortal": "192.0.2.1", "iqn": "iqn.x/../../y"}`, `{"targetPortal": "192.0.2.1", "iqn": "iqn.x;id"}`,
		`{"targetPortal": "192.0.2.1", "iqn": "iqn.*"}`, `{"targetPortal": "192.0.2.1", "iqn": "iqn.a\nb"}`,
		`{"targetPortal": "-p", "iqn": "iqn.x"}`, `{"targetPortal": "a b", "iqn": "iqn.x"}`, `{"targetPortal": "a:0", "iqn": "iqn.x"}`,
		`{"targetPortal": "a:b", "iqn": "iqn.x"}`, `{"targetPortal": "../x", "iqn": "iqn.x"}`, `{"targetPortal": "a:70000", "iqn": "iqn.x"}`,
		`{"targetPortal": "a", "portals": ["*"], "iqn": "iqn.x"}`, `{"targetPortal": "a", "iqn": "iqn.x", "lun": -1}`,
		`{"targetPortal": "a", "iqn": "iqn.x", "lun": 256}`, `{"targetPortal": "a", "iqn": "iqn.x", "iscsiInterface": "../x"}`,
		`{"targetPortal": "a", "iqn": "iqn.x", "initiatorName": "a b"}`, `{"targetPortal": "a", "iqn": "iqn.x", "iscsiInterface": "b", "initiatorName": "iqn.y"}`,
	} {
		v := n.Volume(iscsi.Kind, "data", config, pod)
		for _, err := range []error{n.driver.Stage(t.Context(), v), n.driver.Unstage(t.Context(), v)} {
			e, ok := errors.AsType[*state.CallError](err)
			if !ok || e.Outcome != state.Refused || !errors.Is(err, iscsi.ErrSource) {
				t.Errorf("%s: got %v, want a refusal", config, err)
			}
		}
	}
	n.want("refused")
}
