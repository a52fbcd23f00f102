package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The annotations by which one daemon claims a node's name (ADR 24).
const (
	// HolderAnnotation says which daemon serves the node's volumes.
	HolderAnnotation = "csi-volmgr.dev/holder"
	// ChallengeAnnotation asks the holder whether it still runs.
	ChallengeAnnotation = "csi-volmgr.dev/holder-challenge"
)

const (
	// answerWait is how long a holder may take to answer a challenge. A holder whose
	// watch has just ended starts a new one within a minute.
	answerWait = time.Minute
	// askAgain is how often a daemon that lost the name asks whether the holder still runs.
	askAgain = 2 * time.Minute
)

// ErrNameTaken means that another daemon has this node's name.
var ErrNameTaken = errors.New("another csi-volmgr has this node name")

// Instance describes a daemon to other daemons that claim the same node name.
type Instance struct {
	// ID is the journal's id. It survives a restart and differs between root directories.
	ID string `json:"id"`
	// Process differs for each start of the daemon.
	Process string `json:"process"`
	Host    string `json:"host"`
	PID     int    `json:"pid"`
	Root    string `json:"root"`
	// BootID identifies the boot of the host.
	BootID string `json:"bootID"`
}

func (i Instance) String() string {
	return fmt.Sprintf("pid %d on host %s with --root-dir=%s", i.PID, i.Host, i.Root)
}

// holder is the value of HolderAnnotation.
type holder struct {
	Instance
	// Answers is the nonce of the challenge that the holder last answered.
	Answers string `json:"answers,omitempty"`
}

// challenge is the value of ChallengeAnnotation.
type challenge struct {
	Instance
	Nonce string `json:"nonce"`
}

// nameState says whether a daemon has its node's name.
type nameState uint8

const (
	unknown  nameState = iota // the Node was not seen yet
	asking                    // another daemon has the name, and was asked whether it runs
	holding                   // this daemon has the name
	deprived                  // this daemon had the name, and another has it now
)

// claim is the state of runHolder. Its methods are pure.
type claim struct {
	me       Instance
	standing nameState
	nonce    string    // nonce of the unanswered challenge
	asked    time.Time // when the challenge was made; zero if there is none
	other    Instance  // the other daemon that has or had the name
	met      bool      // another daemon asked for the name while this one had it
	ever     bool      // this process has had the name
	// since is when the server recorded this process's claim, by the server's clock.
	since time.Time
	// kubelet is set if a kubelet writes this Node.
	kubelet bool
}

// nextStep is the next step of runHolder.
type nextStep struct {
	// annotations must be written if not nil; a nil value removes one.
	annotations map[string]any
	// again is when to look again; zero means at the Node's next change.
	again time.Time
	// refused is set if another daemon has the name and this process never had it.
	refused bool
}

// next returns the next step for the Node n. It uses nonce if it makes a new challenge.
func (c *claim) next(n *corev1.Node, now time.Time, nonce string) nextStep {
	has, known := read[holder](n, HolderAnnotation)
	switch {
	case !known || has.Instance.ID == c.me.ID && (has.Process == c.me.Process || !c.ever):
		// No daemon has the name, or an earlier process of this root has it. That process has
		// ended, because this one holds the lock on the root directory.
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
	return c.hold(n, holder{}) // no answer: the holder does not run
}

// hold takes or keeps the name, and answers a challenge of another daemon.
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

// rival reports whether another daemon may have volumes of this node mounted, because it
// runs, or ran during this boot of this host.
func (c *claim) rival() bool {
	return c.kubelet || c.met || c.other.ID != "" && (c.standing == deprived || c.other.ID != c.me.ID &&
		c.other.BootID == c.me.BootID)
}

// why says in a sentence why this daemon must not mount anything new, "" if it may.
func (c *claim) why(node string) string {
	switch {
	case c.kubelet:
		return fmt.Sprintf("node name %s: a kubelet writes the status of this Node too (managedFields: manager %s), and "+
			"mounts the volumes of the same pods. Nothing new is mounted here; mounted volumes stay. Stop the kubelet and "+
			"restart csi-volmgr, or give one of the two another node name", node, kubeletManager)
	case c.standing == asking:
		return fmt.Sprintf("node name %s: %v (%v), which is asked whether it still runs; nothing new is mounted for up to %s",
			node, ErrNameTaken, c.other, answerWait)
	case c.standing == deprived:
		return fmt.Sprintf("node name %s: %v: %v took it over. Nothing new is mounted here; mounted volumes stay, also in "+
			"status.volumesInUse. Stop one of the two, or give it a --node-name of its own", node, ErrNameTaken, c.other)
	}
	return ""
}

// kubeletManager is the field manager with which a kubelet writes the Node.
const kubeletManager = "kubelet"

// kubeletWrites reports whether a kubelet wrote the Node's status after this process
// claimed the name. Other programs have other field managers. An earlier entry is from a
// kubelet that ran on the node before. All times are the server's.
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

// claimed records the time of the claim from n, the server's answer to it.
func (c *claim) claimed(n *corev1.Node) {
	if !c.since.IsZero() || c.standing != holding {
		return
	}
	for _, f := range n.ManagedFields {
		if f.Manager != kubeletManager && f.Time != nil && f.Time.After(c.since) &&
			f.Operation == metav1.ManagedFieldsOperationUpdate {
			c.since = f.Time.Time // the newest write that is not a kubelet's is this claim, or close to it
		}
	}
}

// unwritten returns the state after a failed write of the step from before to c. A gain
// of the name counts only once the server has accepted it; a loss counts at once.
func (c claim) unwritten(before claim) claim {
	if c.standing == asking || c.standing == deprived {
		before.standing, before.other = c.standing, c.other
	}
	return before
}

// read decodes an annotation. ok is false if it is missing or invalid.
func read[T any](n *corev1.Node, annotation string) (value T, ok bool) {
	text := n.Annotations[annotation]
	return value, text != "" && json.Unmarshal([]byte(text), &value) == nil
}

func encode(v any) string {
	text, _ := json.Marshal(v) // strings and numbers always encode
	return string(text)
}
