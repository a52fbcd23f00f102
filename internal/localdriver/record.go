package localdriver

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"time"
)

// recordVersion is the version of every record. Other versions are rejected.
const recordVersion = 1

// The types of volumes.
const (
	typeImage     = "image"
	typeDirectory = "directory"
)

// The phases of a record.
const (
	phaseCreating = "creating" // a copy has been started and may be incomplete
	phaseReady    = "ready"
	phaseDeleting = "deleting" // the data may be partly deleted
)

// volume is the durable record of one volume.
type volume struct {
	Version int    `json:"version"`
	ID      string `json:"id"`
	// Name is the name passed to CreateVolume; "" for an inline volume.
	Name  string `json:"name,omitempty"`
	Type  string `json:"type"`
	Phase string `json:"phase"`
	// CapacityBytes is the size of the volume; for a directory, only the requested size.
	CapacityBytes int64 `json:"capacityBytes"`
	// FSType is the file system to make unless a request names another.
	FSType string `json:"fsType,omitempty"`
	// Formatting is set before an mkfs, and stays set if it is interrupted.
	Formatting string `json:"formatting,omitempty"`
	// Formatted is the file system in the image, or "".
	Formatted string `json:"formatted,omitempty"`
	// FSBytes is the size with which the file system was last made or grown.
	FSBytes int64 `json:"fsBytes,omitempty"`
	// ReadAheadKB is the kernel's read-ahead on its device (KiB); 0 means the kernel's default.
	ReadAheadKB int `json:"readAheadKB,omitempty"`
	// Source is what the volume was copied from.
	Source *source `json:"source,omitempty"`
	// Ephemeral marks an inline volume, which exists from NodePublishVolume to NodeUnpublishVolume.
	Ephemeral bool `json:"ephemeral,omitempty"`
}

// source is what a volume was copied from. Exactly one field is set.
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
	// Group is the id of its group, if any. A member is stored in its group's record.
	Group string `json:"-"`
	copied
}

// copied describes a copied volume.
type copied struct {
	Type          string `json:"type"`
	CapacityBytes int64  `json:"capacityBytes"`
	FSType        string `json:"fsType,omitempty"`
	Formatting    string `json:"formatting,omitempty"`
	Formatted     string `json:"formatted,omitempty"`
	FSBytes       int64  `json:"fsBytes,omitempty"`
}

// copyInfo describes a copy of v that is made now.
func (v volume) copyInfo() copied {
	return copied{
		Type: v.Type, CapacityBytes: v.CapacityBytes, FSType: v.FSType,
		Formatting: v.Formatting, Formatted: v.Formatted, FSBytes: v.FSBytes,
	}
}

// group is the durable record of a group snapshot and its members, so that one write makes all of
// them ready, or none.
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

// snapshots returns the members as snapshots.
func (g group) snapshots() []snapshot {
	all := make([]snapshot, 0, len(g.Members))
	for _, m := range g.Members {
		all = append(all, snapshot{
			ID: m.ID, Phase: g.Phase, SourceVolume: m.SourceVolume, Created: g.Created, Group: g.ID, copied: m.copied,
		})
	}
	return all
}

// attachment is how a volume is in use on this node. It is void under any other boot id.
type attachment struct {
	Version int    `json:"version"`
	ID      string `json:"id"`
	BootID  string `json:"bootID"`
	// Stage is nil for a volume that is not staged.
	Stage *stage `json:"stage,omitempty"`
	// Targets are the publications by target path.
	Targets map[string]publication `json:"targets,omitempty"`
	// Frozen is set before the staged file system is frozen for a copy.
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

// use is the content of a volume capability, in comparable form.
type use struct {
	Block  bool   `json:"block,omitempty"`
	FSType string `json:"fsType,omitempty"`
	// Flags are the mount flags, joined by commas.
	Flags string `json:"flags,omitempty"`
	// Mode is the CSI name of the access mode.
	Mode string `json:"mode"`
}

// record is any of the four kinds of record.
type record interface {
	header() (id string, version int)
	// valid reports whether the types and phases are ones that the driver writes. A flipped bit in one
	// would make data be looked for elsewhere, or a finished copy be made again.
	valid() bool
}

func (v volume) valid() bool   { return isPhase(v.Phase) && isType(v.Type) }
func (n snapshot) valid() bool { return isPhase(n.Phase) && isType(n.Type) }
func (attachment) valid() bool { return true }

func (g group) valid() bool {
	return isPhase(g.Phase) && !slices.ContainsFunc(g.Members, func(m member) bool { return !isType(m.Type) })
}

func isType(s string) bool  { return s == typeImage || s == typeDirectory }
func isPhase(s string) bool { return s == phaseCreating || s == phaseReady || s == phaseDeleting }

func (v volume) header() (string, int)     { return v.ID, v.Version }
func (n snapshot) header() (string, int)   { return n.ID, n.Version }
func (g group) header() (string, int)      { return g.ID, g.Version }
func (a attachment) header() (string, int) { return a.ID, a.Version }

// fsTargets returns the sorted target paths at which the volume's file system is published.
func (a attachment) fsTargets() (paths []string) {
	for path, p := range a.Targets {
		if !p.Block {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths
}

func (a attachment) empty() bool { return a.Stage == nil && len(a.Targets) == 0 && !a.Frozen }

// idPattern matches the ids of newID, and nothing that could leave a directory.
var idPattern = regexp.MustCompile(`^(lv|snap|group)-[0-9a-f]{16}-[0-9a-f]{16}$`)

// ephemeralPattern matches the volume ids that a CO gives to inline volumes.
var ephemeralPattern = regexp.MustCompile(`^csi-[0-9a-f]{64}$`)

// newID returns a unique id for a volume, snapshot or group. It contains a hash of the name, so
// that an unreadable record can be matched with a name.
func newID(kind, name string) string {
	var b [8]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	return fmt.Sprintf("%s-%s-%s", kind, nameHash(name), hex.EncodeToString(b[:]))
}

func nameHash(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:8])
}

// fileKey returns the file name for the records and data of a volume, snapshot or group. The id of
// an inline volume, which the CO chose, appears in a path only as its hash.
func fileKey(id string) string {
	if idPattern.MatchString(id) {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "inline-" + hex.EncodeToString(sum[:])
}
