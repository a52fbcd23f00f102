package plan

import (
	"fmt"
	"slices"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Kind is the verb of a call.
type Kind uint8

// The verbs. All but Attach and Detach are those of the CSI Node service.
const (
	None Kind = iota
	Attach
	Stage
	Publish
	Republish
	Expand
	Unpublish
	Unstage
	Detach
	// Resolve is the step before any call: the pod's volume is not resolved yet. Only
	// statuses contain it; [Next] never returns it.
	Resolve
)

var kindNames = [...]string{
	"", "Attach", "Stage", "Publish", "Republish", "Expand", "Unpublish", "Unstage", "Detach", "Resolve",
}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// MarshalText writes the verb's name.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText parses a verb's name.
func (k *Kind) UnmarshalText(b []byte) error {
	for i, name := range kindNames {
		if name == string(b) {
			*k = Kind(i)
			return nil
		}
	}
	return fmt.Errorf("verb %q: not one of %q", b, kindNames[1:])
}

// Removes reports whether the verb removes something from the host.
func (k Kind) Removes() bool { return k == Unpublish || k == Unstage || k == Detach }

// Op is one call for a volume, as a value. Together with the volume's record it holds
// all that the call and its completion need.
type Op struct {
	Kind Kind `json:"kind,omitempty"`
	// Pod is set for Publish, Republish, Expand and Unpublish.
	Pod state.PodUID `json:"pod,omitempty"`
	// Revision identifies the content that Publish or Republish writes.
	Revision string `json:"revision,omitempty"`
	// SizeBytes is the size that Expand asks for.
	SizeBytes int64 `json:"sizeBytes,omitempty"`
	// Step is how Unpublish or Unstage unmounts before the driver is called;
	// UnmountNormal leaves that to the driver.
	Step state.UnmountStep `json:"step,omitempty"`
}

func (o Op) String() string {
	if o.Pod == "" {
		return o.Kind.String()
	}
	return o.Kind.String() + " for pod " + string(o.Pod)
}

// Retry returns the pacing of v's calls for the fact that the operation changes.
func (o Op) Retry(v state.Volume) state.Retry {
	switch o.Kind {
	case Attach, Detach:
		return v.Attach.Retry()
	case Stage, Unstage:
		return v.Stage.Retry()
	case Expand:
		return v.ExpandFailed.Value()
	default:
		return v.Mounts[o.Pod].Retry()
	}
}

// byUID returns the keys of a map, sorted. A plan needs it several times, nearly always
// for one pod. For that, slices.Sorted(maps.Keys) costs more than the rest of the plan.
func byUID[T any](of map[state.PodUID]T) []state.PodUID {
	pods := make([]state.PodUID, 0, len(of))
	for pod := range of {
		pods = append(pods, pod)
	}
	slices.Sort(pods)
	return pods
}
