package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The annotations by which one daemon has a Node's name for itself (ADR 24).
const (
	// HolderAnnotation says which daemon makes the node's volumes.
	HolderAnnotation = "csi-volmgr.dev/holder"
	// ChallengeAnnotation asks the holder whether it runs.
	ChallengeAnnotation = "csi-volmgr.dev/holder-challenge"
)

const (
	// answerWait is how long a holder may take to answer a challenge. A holder whose
	// watch has just ended begins another within a minute.
	answerWait = time.Minute
	// askAgain is how often a daemon that lost the name asks whether the other runs.
	askAgain = 2 * time.Minute
)

// ErrNameTaken means that another daemon makes the volumes of the node's name.
var ErrNameTaken = errors.New("another csi-volmgr has this node name")

// Instance is one daemon, as it shows itself to another that wants its node's name.
type Instance struct {
	// ID is that of the journal: a restart keeps it, another root has another.
	ID string `json:"id"`
	// Process is another one for each start.
	Process string `json:"process"`
	Host    string `json:"host"`
	PID     int    `json:"pid"`
	Root    string `json:"root"`
	// BootID names the boot of the host.
	BootID string `json:"bootID"`
}

func (i Instance) String() string {
	return fmt.Sprintf("pid %d on host %s with --root-dir=%s", i.PID, i.Host, i.Root)
}

// holder is what HolderAnnotation has.
type holder struct {
	Instance
	// Answers is the challenge that the holder answered last.
	Answers string `json:"answers,omitempty"`
}

// challenge is what ChallengeAnnotation has.
type challenge struct {
	Instance
	Nonce string `json:"nonce"`
}

// nameState is how a daemon stands to its node's name.
type nameState uint8

const (
	unknown  nameState = iota // the Node was not seen yet
	asking                    // another has it, and was asked whether it runs
	holding                   // this daemon has it
	deprived                  // this daemon had it, and another has it now
)

// claim is what runHolder knows. Its methods are pure.
type claim struct {
	me       Instance
	standing nameState
	nonce    string    // of the challenge that is under way
	asked    time.Time // when it was made; zero for none
	other    Instance  // who has the name, or had it
	met      bool      // another asked while this one had the name
	ever     bool      // this process has had the name
	// since is when the server noted this process's claim, by its own clock.
	since time.Time
	// kubelet: one writes this Node.
	kubelet bool
}

// nextStep is what is to be done next.
type nextStep struct {
	// annotations are to be written, nil for none; a nil value removes one.
	annotations map[string]any
	// again is when to look again, zero for at the Node's next event.
	again time.Time
	// refused: the name is another's, and this process never had it.
	refused bool
}

// next decides what to do about the Node as it is now; nonce is one of its own for
// a new challenge.
func (c *claim) next(n *corev1.Node, now time.Time, nonce string) nextStep {
	has, known := read[holder](n, HolderAnnotation)
	switch {
	case !known || has.Instance.ID == c.me.ID && (has.Process == c.me.Process || !c.ever):
		// No daemon's, or of an earlier process of this root, which has ended: the root is locked.
		return c.hold(n, has)
	case c.asked.IsZero():
		if c.standing == holding {
			c.standing = deprived
		}
		if c.standing == unknown {
			c.standing = asking
		}
		c.other, c.nonce, c.asked = has.Instance, nonce, now
		return nextStep{
			annotations: map[string]any{ChallengeAnnotation: encode(challenge{c.me, nonce})},
			again:       now.Add(answerWait),
		}
	case has.Answers == c.nonce && c.nonce != "":
		c.other, c.nonce = has.Instance, ""
		if !c.ever {
			return nextStep{refused: true}
		}
		return nextStep{again: c.asked.Add(askAgain)}
	case now.Sub(c.asked) < answerWait:
		return nextStep{again: c.asked.Add(answerWait)}
	case c.nonce == "" && now.Sub(c.asked) < askAgain:
		return nextStep{again: c.asked.Add(askAgain)}
	case c.nonce == "":
		c.asked = time.Time{}
		return c.next(n, now, nonce)
	}
	c.other = has.Instance
	return c.hold(n, holder{}) // no answer: it does not run
}

// hold takes the name, keeps it, and answers who asks.
func (c *claim) hold(n *corev1.Node, has holder) nextStep {
	if c.standing == deprived {
		c.since = time.Time{}
	}
	c.standing, c.ever, c.nonce, c.asked = holding, true, "", time.Time{}
	want := holder{Instance: c.me, Answers: has.Answers}
	asks, asked := read[challenge](n, ChallengeAnnotation)
	annotations := map[string]any{}
	if asked && asks.Process != c.me.Process {
		want.Answers = asks.Nonce
		c.other, c.met = asks.Instance, true
	}
	if asked {
		annotations[ChallengeAnnotation] = nil
	}
	if want != has {
		annotations[HolderAnnotation] = encode(want)
	}
	if len(annotations) == 0 {
		return nextStep{}
	}
	return nextStep{annotations: annotations}
}

// rival reports whether another daemon may have volumes of this node mounted: it runs,
// or it ran in this boot of this host.
func (c *claim) rival() bool {
	return c.kubelet || c.met || c.other.ID != "" && (c.standing == deprived || c.other.ID != c.me.ID &&
		c.other.BootID == c.me.BootID)
}

// why says for people what keeps this daemon from making anything new; "" for nothing.
func (c *claim) why(node string) string {
	switch {
	case c.kubelet:
		return fmt.Sprintf("node name %s: a kubelet writes the status of this Node too (managedFields: manager %s), and "+
			"makes the volumes "+
			"of the same pods. Nothing new is mounted here; what is mounted stays. End the kubelet and restart csi-volmgr, or "+
			"give one "+
			"of the two another node name", node, kubeletManager)
	case c.standing == asking:
		return fmt.Sprintf("node name %s: %v has it (%v), and is asked whether it still runs: nothing new is mounted for "+
			"up to %s",
			node, ErrNameTaken, c.other, answerWait)
	case c.standing == deprived:
		return fmt.Sprintf("node name %s: %v: %v took it over. Nothing new is mounted here; what is mounted stays, and "+
			"stays in "+
			"status.volumesInUse. End one of the two, or give it a --node-name of its own", node, ErrNameTaken, c.other)
	}
	return ""
}

// kubeletManager is the name under which a kubelet writes the Node.
const kubeletManager = "kubelet"

// kubeletWrites reports whether a kubelet wrote the Node's status since this process
// claimed it. Other programs write it under names of their own. An entry from before
// is of a kubelet that ran on the node earlier. All times are the server's.
func (c *claim) kubeletWrites(n *corev1.Node) bool {
	if c.since.IsZero() {
		return false
	}
	for _, f := range n.ManagedFields {
		if f.Manager == kubeletManager && f.Subresource == "status" && f.Time != nil && f.Time.After(c.since) {
			return true
		}
	}
	return false
}

// claimed takes in the Node that answered the claim.
func (c *claim) claimed(n *corev1.Node) {
	if !c.since.IsZero() || c.standing != holding {
		return
	}
	for _, f := range n.ManagedFields {
		if f.Manager != kubeletManager && f.Time != nil && f.Time.After(c.since) &&
			f.Operation == metav1.ManagedFieldsOperationUpdate {
			c.since = f.Time.Time // the newest write of another than a kubelet is this one, or near it
		}
	}
}

// unwritten returns what holds where the turn from before to c was not written: the
// name is not had before the server has taken the claim, and what is lost is lost.
func (c claim) unwritten(before claim) claim {
	if c.standing == asking || c.standing == deprived {
		before.standing, before.other = c.standing, c.other
	}
	return before
}

// read decodes an annotation; one that cannot be read is none.
func read[T any](n *corev1.Node, annotation string) (value T, ok bool) {
	text := n.Annotations[annotation]
	return value, text != "" && json.Unmarshal([]byte(text), &value) == nil
}

func encode(v any) string {
	text, _ := json.Marshal(v) // strings and numbers, which can be written
	return string(text)
}
