package csistrict

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Script sets the driver's abilities, its expectations, and how it misbehaves.
// The zero value is an honest driver with its ordinary abilities.
type Script struct {
	// With and Without change the abilities, by their CSI names:
	// STAGE_UNSTAGE_VOLUME, PUBLISH_UNPUBLISH_VOLUME, VOLUME_MOUNT_GROUP...
	// OFFLINE in With makes expansion offline only. For an ability that two services may have, the prefix
	// CONTROLLER_ or NODE_ selects one of them, as in CONTROLLER_EXPAND_VOLUME.
	With    []string `json:"with,omitempty"`
	Without []string `json:"without,omitempty"`
	// NoController: the driver says that it has no Controller service.
	NoController bool `json:"noController,omitempty"`
	// Attach is attachRequired of the CSIDriver object; nil means true.
	Attach *bool `json:"attach,omitempty"`
	// PodInfo is podInfoOnMount of the CSIDriver object; nil: not checked.
	PodInfo *bool `json:"podInfo,omitempty"`
	// Secrets are the secrets that each call, by name, must carry; no other call
	// may carry any. nil: not checked.
	Secrets map[string]map[string]string `json:"secrets,omitempty"`
	// NodeID replaces the configured one if it is set.
	NodeID string `json:"nodeID,omitempty"`
	// MaxVolumes is the limit in NodeGetInfo, whether it makes sense or not.
	MaxVolumes int64 `json:"maxVolumes,omitempty"`
	// Health has the troubles of volumes, by the id of each or the parameter "tag" that
	// it was made with; Storage has the troubles of the storage behind the driver.
	Health  map[string][]Trouble `json:"health,omitempty"`
	Storage []Trouble            `json:"storage,omitempty"`

	// Counts: the driver counts its publications on disk, by target, and refuses to unstage or detach
	// a volume that has any. A reboot does not change the count, as with csi-driver-host-path.
	Counts bool `json:"counts,omitempty"`

	Faults []Fault `json:"faults,omitempty"`
}

// Trouble is one condition. Status is CSI's word for it, such as DATA_LOSS.
type Trouble struct {
	Status  string `json:"status"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// Fault is one way to misbehave, in the calls that it matches.
type Fault struct {
	// ID names the fault; the driver counts the fault's calls by it, also
	// across restarts.
	ID string `json:"id"`
	// Call is the RPC's name, such as NodeStageVolume.
	Call string `json:"call"`
	// Volume is the id of a volume, or the parameter "tag" that it was made
	// with; "" matches all.
	Volume string `json:"volume,omitempty"`
	// Above spares requests for that many bytes or fewer; 0 spares none.
	Above int64 `json:"above,omitempty"`
	// After is how many matching calls are spared first, Times how many are then
	// hit; 0 means all.
	After int `json:"after,omitempty"`
	Times int `json:"times,omitempty"`

	// Delay passes before the effect, in milliseconds; it ends when the caller
	// gives up, unless IgnoreCancel.
	Delay        int  `json:"delay,omitempty"`
	IgnoreCancel bool `json:"ignoreCancel,omitempty"`
	// Effect is what happens to the volume; "" is the correct effect.
	Effect Effect `json:"effect,omitempty"`
	// Path is the path where EffectForeign mounts and the target of EffectSymlink.
	Path string `json:"path,omitempty"`
	// Late is when EffectLate happens, in milliseconds after the answer.
	Late int `json:"late,omitempty"`
	// Crash ends the process: CrashBefore or CrashAfter the effect.
	Crash string `json:"crash,omitempty"`
	// Code is the answer, a gRPC code or one that gRPC does not know; 0 means
	// the code of the effect.
	Code uint32 `json:"code,omitempty"`
	// Message is the error's text.
	Message string `json:"message,omitempty"`
	// Drop closes all connections instead of answering.
	Drop bool `json:"drop,omitempty"`
	// Garbage replaces the answer: GarbageHuge or GarbageBytes.
	Garbage string `json:"garbage,omitempty"`
}

// Effect is what a call does to its volume.
type Effect string

// Effects other than the correct one.
const (
	EffectNone    Effect = "none"    // nothing
	EffectPartial Effect = "partial" // makes the directory of the target, and no mount
	EffectDouble  Effect = "double"  // one mount more than there should be
	EffectForeign Effect = "foreign" // the mount is made at another path
	EffectSymlink Effect = "symlink" // the target is a symbolic link
	EffectSetuid  Effect = "setuid"  // as it should be, with a setuid file and a device in the volume
	EffectLate    Effect = "late"    // as it should be, after the answer
)

// Values of Crash and of Garbage.
const (
	CrashBefore  = "before"
	CrashAfter   = "after"
	GarbageHuge  = "huge"
	GarbageBytes = "bytes"
)

// WriteScript puts s into effect for the driver with the state directory dir, from its
// next call on.
func WriteScript(dir string, s Script) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("write script: %w", err)
	}
	temp := scriptPath(dir) + ".new"
	if err := os.WriteFile(temp, data, 0o600); err != nil {
		return fmt.Errorf("write script: %w", err)
	}
	if err := os.Rename(temp, scriptPath(dir)); err != nil {
		return fmt.Errorf("write script: %w", err)
	}
	return nil
}

// readScript reads the script that is in force; without one the driver is honest.
func (c Config) readScript() (Script, error) {
	var s Script
	data, err := os.ReadFile(scriptPath(c.StateDir))
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Script{}, fmt.Errorf("read script: %w", err)
	}
	s.Without = append(s.Without, c.Without...)
	return s, nil
}

// attaches reports whether volumes must be attached, according to both the driver and
// the CSIDriver object.
func (s Script) attaches() bool {
	return s.can("PUBLISH_UNPUBLISH_VOLUME") && !s.NoController && (s.Attach == nil || *s.Attach)
}

func (f Fault) delay() time.Duration { return time.Duration(f.Delay) * time.Millisecond }

func scriptPath(dir string) string     { return filepath.Join(dir, "script.json") }
func transcriptPath(dir string) string { return filepath.Join(dir, "transcript.jsonl") }
func modelPath(dir string) string      { return filepath.Join(dir, "model.json") }
