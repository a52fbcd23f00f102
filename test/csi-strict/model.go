package csistrict

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// Phase is what a CO may believe about a fact, given the answers that it got.
type Phase string

// The phases. Only a removal with the answer OK makes a fact absent again.
const (
	Absent  Phase = ""
	Maybe   Phase = "maybe" // begun, and never answered OK
	Present Phase = "present"
	Leaving Phase = "leaving" // its removal has begun and was never answered OK
)

// Fact is an attachment, a stage or a publication.
type Fact struct {
	Phase Phase `json:"phase,omitempty"`
	// Request is the request that made it, without secrets.
	Request string `json:"request,omitempty"`
	// Context is the publish context that an attachment gave.
	Context map[string]string `json:"context,omitempty"`
	// Odd: it was answered OK while the script made the driver misbehave.
	Odd bool `json:"odd,omitempty"`
	// Capability is the request's, in one line.
	Capability string `json:"capability,omitempty"`
}

// Volume is the driver's state of a volume.
type Volume struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
	// Tag is the parameter "tag" that it was made with.
	Tag   string `json:"tag,omitempty"`
	Block bool   `json:"block,omitempty"`
	// Ephemeral: it was made by NodePublishVolume.
	Ephemeral bool `json:"ephemeral,omitempty"`
	// Context is the volume context that CreateVolume gave.
	Context map[string]string `json:"context,omitempty"`
	Params  map[string]string `json:"params,omitempty"`
	// Mutable are its current mutable_parameters.
	Mutable map[string]string `json:"mutable,omitempty"`
	// SizeBytes is its size, NodeSizeBytes what NodeExpandVolume last made of it.
	SizeBytes     int64 `json:"sizeBytes"`
	NodeSizeBytes int64 `json:"nodeSizeBytes,omitempty"`

	// Zone is the zone in which the volume can be reached; empty: everywhere.
	Zone   string `json:"zone,omitempty"`
	NodeID string `json:"nodeID,omitempty"` // that it is attached to
	Attach Fact   `json:"attach,omitzero"`
	Stage  Fact   `json:"stage,omitzero"`
	// StagePath is the path at which it was first staged.
	StagePath string          `json:"stagePath,omitempty"`
	Targets   map[string]Fact `json:"targets,omitempty"`
	// Counted are the publications that the driver counts, by target, if its script says so.
	Counted map[string]int `json:"counted,omitempty"`

	// Last has the last end of each call, by call and path.
	Last map[string]ended `json:"last,omitempty"`
}

// ended is how a call ended.
type ended struct {
	At   time.Time `json:"at"`
	Code uint32    `json:"code"` // a gRPC code, or one that gRPC does not know
	// Request is the request, without secrets.
	Request string `json:"request,omitempty"`
	// Hot is how many calls in a row came without a pause after an error.
	Hot int `json:"hot,omitempty"`
	// Asked is how often the driver had been asked for its abilities at that time.
	Asked int `json:"asked,omitempty"`
}

// Model is the driver's whole state, as stored in its state directory.
type Model struct {
	Volumes   map[string]*Volume   `json:"volumes"`
	Snapshots map[string]*Snapshot `json:"snapshots,omitempty"`
	Groups    map[string]*Group    `json:"groups,omitempty"`
	// Fired counts the calls that each fault matched, by its ID.
	Fired map[string]int `json:"fired,omitempty"`
	// Asked counts the requests for abilities.
	Asked int `json:"asked,omitempty"`
}

// ReadModel reads the state of the driver with the state directory dir.
func ReadModel(dir string) (Model, error) {
	m := Model{}
	data, err := os.ReadFile(modelPath(dir))
	if err == nil {
		err = json.Unmarshal(data, &m)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Model{}, fmt.Errorf("read model: %w", err)
	}
	if m.Volumes == nil {
		m.Volumes = map[string]*Volume{}
	}
	if m.Snapshots == nil {
		m.Snapshots = map[string]*Snapshot{}
	}
	if m.Groups == nil {
		m.Groups = map[string]*Group{}
	}
	if m.Fired == nil {
		m.Fired = map[string]int{}
	}
	return m, nil
}

// save writes m in one step.
func (m Model) save(dir string) error {
	data, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("save model: %w", err)
	}
	temp := modelPath(dir) + ".new"
	if err := os.WriteFile(temp, data, 0o600); err != nil {
		return fmt.Errorf("save model: %w", err)
	}
	if err := os.Rename(temp, modelPath(dir)); err != nil {
		return fmt.Errorf("save model: %w", err)
	}
	return nil
}

// Left lists the volumes that are or may be still attached, staged or published, since
// no CO removed them.
func (m Model) Left() (left []string) {
	for id, v := range m.Volumes {
		if v.Attach.Phase != Absent {
			left = append(left, fmt.Sprintf("%s is attached (%s)", id, v.Attach.Phase))
		}
		if v.Stage.Phase != Absent {
			left = append(left, fmt.Sprintf("%s is staged (%s) at %s", id, v.Stage.Phase, v.StagePath))
		}
		for target, f := range v.Targets {
			left = append(left, fmt.Sprintf("%s is published (%s) at %s", id, f.Phase, target))
		}
	}
	return left
}

// inUse reports whether anything of v may be on the node.
func (v *Volume) inUse() bool { return v.Stage.Phase != Absent || len(v.Targets) > 0 }

// match returns the fault for a call, and counts the call.
func (m Model) match(s Script, c *call, v *Volume) (Fault, bool) {
	for _, f := range s.Faults {
		if f.Call != c.name || f.Volume != "" && f.Volume != c.volume && (v == nil || f.Volume != v.Tag) || f.Above != 0 && bytesOf(c.req) <= f.Above {
			continue
		}
		n := m.Fired[f.ID]
		m.Fired[f.ID] = n + 1
		if n >= f.After && (f.Times == 0 || n < f.After+f.Times) {
			return f, true
		}
	}
	return Fault{}, false
}
