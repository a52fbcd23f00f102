package localdriver

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"time"
)

// recordVersion is the version of every record written; others are refused.
const recordVersion = 1

// The kinds of volume.
const (
	typeImage     = "image"
	typeDirectory = "directory"
)

// The phases of a record.
const (
	phaseCreating = "creating" // a copy has been announced and may be half there
	phaseReady    = "ready"
	phaseDeleting = "deleting" // its bytes may be half gone
)

// volume is the durable record of one volume.
type volume struct {
	Version int    `json:"version"`
	ID      string `json:"id"`
	// Name is the name CreateVolume was called with; "" for an inline volume.
	Name  string `json:"name,omitempty"`
	Type  string `json:"type"`
	Phase string `json:"phase"`
	// CapacityBytes is the size of the volume; for a directory only what was asked for.
	CapacityBytes int64 `json:"capacityBytes"`
	// FSType is what the volume will be formatted with if no request says otherwise.
	FSType string `json:"fsType,omitempty"`
	// Formatting announces an mkfs. It stays set if that was interrupted.
	Formatting string `json:"formatting,omitempty"`
	// Formatted is the file system that is there; "" for none.
	Formatted string `json:"formatted,omitempty"`
	// FSBytes is the size the file system was last made or grown to.
	FSBytes int64 `json:"fsBytes,omitempty"`
	// ReadAheadKB is how far the kernel reads ahead on its device (KiB); 0 is the kernel's default.
	ReadAheadKB int `json:"readAheadKB,omitempty"`
	// Source is what the volume was copied from.
	Source *source `json:"source,omitempty"`
	// Ephemeral marks an inline volume, which lives from NodePublishVolume to NodeUnpublishVolume.
	Ephemeral bool `json:"ephemeral,omitempty"`
}

// source names what a volume was copied from: exactly one of the two.
type source struct {
	Volume   string `json:"volume,omitempty"`
	Snapshot string `json:"snapshot,omitempty"`
}

// snapshot is the durable record of one snapshot.
type snapshot struct {
	Version      int       `json:"version"`
	ID           string    `json:"id"`
	Name         string    `json:"name"`
	Phase        string    `json:"phase"`
	SourceVolume string    `json:"sourceVolume"`
	Created      time.Time `json:"created"`
	// Group is the id of the group that it is a member of. A member is in its group's record and has none of its own.
	Group string `json:"-"`
	copied
}

// copied is a volume as it was copied.
type copied struct {
	Type          string `json:"type"`
	CapacityBytes int64  `json:"capacityBytes"`
	FSType        string `json:"fsType,omitempty"`
	Formatting    string `json:"formatting,omitempty"`
	Formatted     string `json:"formatted,omitempty"`
	FSBytes       int64  `json:"fsBytes,omitempty"`
}

// asCopied is what a copy of v that is made now will be.
func (v volume) asCopied() copied {
	return copied{
		Type: v.Type, CapacityBytes: v.CapacityBytes, FSType: v.FSType,
		Formatting: v.Formatting, Formatted: v.Formatted, FSBytes: v.FSBytes,
	}
}

// group is the durable record of a group snapshot and of its members, so that one write makes all of them
// ready, or none.
type group struct {
	Version int       `json:"version"`
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Phase   string    `json:"phase"`
	Created time.Time `json:"created"`
	Members []member  `json:"members"`
}

// member is one snapshot of a group.
type member struct {
	ID           string `json:"id"`
	SourceVolume string `json:"sourceVolume"`
	copied
}

// snapshots are the members, each as the snapshot that it is.
func (g group) snapshots() []snapshot {
	all := make([]snapshot, 0, len(g.Members))
	for _, m := range g.Members {
		all = append(all, snapshot{
			ID: m.ID, Phase: g.Phase, SourceVolume: m.SourceVolume, Created: g.Created, Group: g.ID, copied: m.copied,
		})
	}
	return all
}

// attachment is where a volume is in use on this node. It is void under any
// other boot id.
type attachment struct {
	Version int    `json:"version"`
	ID      string `json:"id"`
	BootID  string `json:"bootID"`
	// Stage is nil for a volume that is not staged.
	Stage *stage `json:"stage,omitempty"`
	// Targets are the publications by target path.
	Targets map[string]publication `json:"targets,omitempty"`
	// Frozen announces that the staged file system is frozen for a copy.
	Frozen bool `json:"frozen,omitempty"`
}

// stage is one NodeStageVolume.
type stage struct {
	Path string `json:"path"`
	use
}

// publication is one NodePublishVolume.
type publication struct {
	ReadOnly bool `json:"readOnly,omitempty"`
	use
}

// use is what a volume capability asks for, comparable.
type use struct {
	Block  bool   `json:"block,omitempty"`
	FSType string `json:"fsType,omitempty"`
	// Flags are the mount flags, joined by commas.
	Flags string `json:"flags,omitempty"`
	// Mode is the CSI name of the access mode.
	Mode string `json:"mode"`
}

// record is any of the four.
type record interface {
	header() (id string, version int)
}

func (v volume) header() (string, int)     { return v.ID, v.Version }
func (n snapshot) header() (string, int)   { return n.ID, n.Version }
func (g group) header() (string, int)      { return g.ID, g.Version }
func (a attachment) header() (string, int) { return a.ID, a.Version }

func (a attachment) empty() bool { return a.Stage == nil && len(a.Targets) == 0 && !a.Frozen }

// idPattern matches the ids that newID makes, and nothing that could leave a directory.
var idPattern = regexp.MustCompile(`^(lv|snap|group)-[0-9a-f]{16}-[0-9a-f]{16}$`)

// ephemeralPattern matches the volume ids a CO gives to inline volumes.
var ephemeralPattern = regexp.MustCompile(`^csi-[0-9a-f]{64}$`)

// newID makes an id that no other volume, snapshot or group ever has. It begins with
// a hash of the name, so that even an unreadable record tells whose it may be.
func newID(kind, name string) string {
	var b [8]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	return fmt.Sprintf("%s-%s-%s", kind, nameHash(name), hex.EncodeToString(b[:]))
}

func nameHash(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:8])
}

// fileKey is the file name of a volume's, snapshot's or group's records and data. An id
// that the CO chose, an inline volume's, reaches a path only as its hash.
func fileKey(id string) string {
	if idPattern.MatchString(id) {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "inline-" + hex.EncodeToString(sum[:])
}
