package plan

import (
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Held says why no call is made although the volume is not as wanted. Without
// a Reason it is as wanted, and has to be looked at again at Until, if that is
// set.
type Held struct {
	// Step is the verb that waits.
	Step Kind `json:"step,omitempty"`
	// Pod is the pod whose mount it waits for, if one.
	Pod state.PodUID `json:"pod,omitempty"`
	// Code is why, for programs. Reason says it to people.
	Code Code `json:"-"`
	// Reason is one sentence for a person.
	Reason string `json:"reason,omitempty"`
	// Dead: what is mounted is dead, and pods have it.
	Dead bool `json:"dead,omitempty"`
	// Until is when to look again if no event comes first; zero means that only an event helps.
	Until time.Time `json:"until,omitzero"`
	// Operator: no call and no event that is due ends it. An operator has to look.
	Operator bool `json:"operator,omitempty"`
}

// Waits reports whether a step waits.
func (h Held) Waits() bool { return h.Code != "" }

// Code is why a step waits, as a word: decisions are made on it and never on the sentence
// beside it. "" is no wait.
type Code string

// The codes of [Next].
const (
	DriverDown   Code = "DriverDown"   // the driver is not registered
	NoRoom       Code = "NoRoom"       // the driver or the cluster does not serve the volume on this node
	Final        Code = "Final"        // the driver's answer forbids a repetition
	Pause        Code = "Pause"        // a call failed, and the pause after it is not over
	NotSynced    Code = "NotSynced"    // a source of pods has not spoken
	Kept         Code = "Kept"         // it is not proven that a pod's containers have ended
	Unlooked     Code = "Unlooked"     // it is not known yet what is mounted without a record
	Unrecorded   Code = "Unrecorded"   // a mount without a record may be the volume's: an operator has to look
	Unmade       Code = "Unmade"       // a pod has the volume without a record, and gets its record first
	DeadMount    Code = "Dead"         // the server of what is mounted has ended, and pods have it
	OtherForm    Code = "OtherForm"    // the pod has the volume otherwise than it says
	Reattached   Code = "Reattached"   // pods have the volume as it was before it was attached anew
	InUse        Code = "InUse"        // another pod has the volume, whose access mode is ReadWriteOncePod
	OtherGroup   Code = "OtherGroup"   // the volume has another group
	OtherLabel   Code = "OtherLabel"   // the volume has another SELinux label
	WishHeld     Code = "WishHeld"     // the wish itself says what it waits for
	NoGrow       Code = "NoGrow"       // the claim says why the volume does not grow here
	ReadOnlySize Code = "ReadOnlySize" // the volume is mounted read-only, so it does not grow here
)

// The codes of those that carry out what [Next] returns.
const (
	Slot     Code = "Slot"     // as many calls are in flight as the driver or the node has
	Looking  Code = "Looking"  // what is mounted is being compared with what is known
	Emptied  Code = "Emptied"  // the node is emptied
	Unsaved  Code = "Unsaved"  // the journal did not take the intent
	Earlier  Code = "Earlier"  // another step or call of the volume comes first
	NoRecord Code = "NoRecord" // the volume's record cannot be read
)

// why is why a step waits, for programs and for people; the zero value is no wait.
type why struct {
	code Code
	text string
}

// reasonFor is why with a text that may be none: then there is no wait.
func reasonFor(code Code, text string) why {
	if text == "" {
		return why{}
	}
	return why{code, text}
}
