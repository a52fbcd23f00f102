package plan

import (
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Held says why no call is made although the volume is not as wanted. With no Code the
// volume is as wanted, and is planned again at Until if that is set.
type Held struct {
	// Step is the verb that waits.
	Step Kind `json:"step,omitempty"`
	// Pod is the pod for whose mount the step is, if it is for one.
	Pod state.PodUID `json:"pod,omitempty"`
	// Code is the reason for programs.
	Code Code `json:"-"`
	// Reason is the reason for people, in one sentence.
	Reason string `json:"reason,omitempty"`
	// Dead: the server of the mounted file system has ended, and pods have it mounted.
	Dead bool `json:"dead,omitempty"`
	// Until is when to plan again if no event comes first; zero means to wait for an event.
	Until time.Time `json:"until,omitzero"`
	// Operator: neither a call nor an expected event ends the wait. An operator has to look.
	Operator bool `json:"operator,omitempty"`
}

// Waits reports whether a step waits.
func (h Held) Waits() bool { return h.Code != "" }

// Code is why a step waits, as one word. Decisions depend on it and never on the sentence
// that comes with it. "" means no wait.
type Code string

// The codes of [Next].
const (
	DriverDown   Code = "DriverDown"   // the driver is not registered
	AttacherDown Code = "AttacherDown" // the driver's controller has an endpoint of its own, which does not answer
	NoRoom       Code = "NoRoom"       // the driver or the cluster does not serve the volume on this node
	NoProgram    Code = "NoProgram"    // the driver needs a program that is not installed
	Final        Code = "Final"        // the driver's answer forbids repeating the call
	Pause        Code = "Pause"        // a call failed, and the pause after it is not over
	NotSynced    Code = "NotSynced"    // a source has not yet listed its pods
	Kept         Code = "Kept"         // it is not proven that a pod's containers have ended
	unlooked     Code = "Unlooked"     // it is not known yet what is mounted without a record
	Unrecorded   Code = "Unrecorded"   // a mount without a record may be the volume's: an operator has to look
	unmade       Code = "Unmade"       // a pod has the volume without a record, and gets its record first
	DeadMount    Code = "Dead"         // the server of the mounted file system has ended, and pods have it
	PathTaken    Code = "PathTaken"    // another volume is, or may be, at the volume's path
	OtherForm    Code = "OtherForm"    // the pod's mount differs from the one that it now asks for
	Reattached   Code = "Reattached"   // pods still have the volume from before it was attached again
	InUse        Code = "InUse"        // another pod has the volume, whose access mode is ReadWriteOncePod
	OtherGroup   Code = "OtherGroup"   // the volume has another group
	OtherLabel   Code = "OtherLabel"   // the volume has another SELinux label
	WishHeld     Code = "WishHeld"     // the wish itself says what it waits for
	NoGrow       Code = "NoGrow"       // the claim says why the volume does not grow here
	readOnlySize Code = "ReadOnlySize" // the volume is mounted read-only, so it does not grow here
)

// The codes of the manager, which carries out what [Next] returns.
const (
	Slot     Code = "Slot"     // the driver or the node has its maximum number of calls in flight
	Looking  Code = "Looking"  // the record is being compared with the kernel
	Emptied  Code = "Emptied"  // the node is being emptied
	Unsaved  Code = "Unsaved"  // the journal could not store the intent
	Earlier  Code = "Earlier"  // another step or call of the volume comes first
	NoRecord Code = "NoRecord" // the volume's record cannot be read
)

// reason is the reason why a step waits, for programs and for people. The zero value means no wait.
type reason struct {
	code Code
	text string
}

// reasonIf returns code with text, or no wait if text is "".
func reasonIf(code Code, text string) reason {
	if text == "" {
		return reason{}
	}
	return reason{code, text}
}
