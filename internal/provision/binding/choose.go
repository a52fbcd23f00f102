package binding

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// choice is the durable record of a claim's volume.
type choice struct {
	Version int    `json:"version"`
	Claim   string `json:"claim"` // namespace/name
	Volume  string `json:"volume"`
	// Storage identifies the storage that the volume referred to when it was chosen.
	Storage string `json:"storage"`
	// Released means that an operator deleted the claim.
	Released bool `json:"released,omitempty"`
}

// inputs is what choices depend on.
type inputs struct {
	// claims are the listed claims that may be bound here, each with its class.
	claims []claimOf
	// volumes are all volumes that the sources list, sorted by name.
	volumes []*corev1.PersistentVolume
	// named holds the claims that name a volume in spec.volumeName, by the volume's name.
	named map[string][]asker
	// owners are the present owners of volumes.
	owners map[string]resolve.Owner
	// listed has each listed claim by "namespace/name"; uids has its UID.
	listed map[string]bool
	uids   map[string]types.UID
	// storage is resolve.Storage.
	storage func(*corev1.PersistentVolume) string
	// choices are the current choices by claim.
	choices map[source.Key]choice
	// unreadable holds the error for each claim whose choice cannot be read.
	unreadable map[source.Key]string
	// hidden says which listed claim, volume or class cannot be read, and why; "" if all can.
	hidden string
	here   func(*corev1.PersistentVolume) error
}

type claimOf struct {
	*corev1.PersistentVolumeClaim
	class string
	// missing says that the class does not exist; its text is "" if it does, or if none is asked for.
	missing note
}

// note is the reason why a claim has no usable volume, for people and for programs.
type note struct {
	text  string
	cause state.Cause
}

func (c claimOf) key() source.Key {
	return source.Key{Kind: resolve.KindClaim, Namespace: c.Namespace, Name: c.Name}
}

// next returns the new choices, and for each claim without a usable volume the reason.
func next(w inputs) (choices map[source.Key]choice, notes map[source.Key]note) {
	choices, notes = map[source.Key]choice{}, map[source.Key]note{}
	maps.Copy(choices, w.choices)
	volumes := map[string]*corev1.PersistentVolume{}
	for _, pv := range w.volumes {
		volumes[pv.Name] = pv
	}
	for key, c := range choices {
		if c.Released && volumes[c.Volume] == nil && w.hidden == "" {
			delete(choices, key)
		}
	}
	taken := map[string]string{}
	for key, c := range choices {
		taken[c.Volume] = key.Namespace + "/" + key.Name
	}
	for _, claim := range w.claims {
		key := claim.key()
		c, has := choices[key]
		switch {
		case w.unreadable[key] != "":
			notes[key] = badRecord("the record of its volume cannot be read: " + w.unreadable[key])
		case has && volumes[c.Volume] == nil && w.hidden != "":
			notes[key] = badRecord(fmt.Sprintf("its PersistentVolume %s is not listed, and %s", c.Volume, w.hidden))
		case has && (volumes[c.Volume] == nil || resolve.Storage(volumes[c.Volume]) != c.Storage):
			notes[key] = noVolume(fmt.Sprintf("its PersistentVolume %s is no longer listed with the storage that it had; list "+
				"that again, or delete the claim", c.Volume))
		case has:
			c.Released = false
			choices[key] = c
		case claim.Spec.DataSource != nil || claim.Spec.DataSourceRef != nil:
			notes[key] = note{"it asks for a dataSource, and its class makes no volumes: an existing PersistentVolume holds " +
				"other data", state.Cause{Code: state.BadClaim}}
			if claim.missing.text != "" {
				notes[key] = claim.missing
			}
		case len(w.unreadable) > 0:
			notes[key] = badRecord(fmt.Sprintf("the record of the volume of %s cannot be read, so it is unknown which volumes "+
				"are free; name one in spec.volumeName",
				slices.MinFunc(slices.Collect(maps.Keys(w.unreadable)), source.Key.Compare)))
		case w.hidden != "":
			notes[key] = badRecord("it is unknown which volumes are free: " + w.hidden)
		default:
			pv, why := choose(w, claim, taken)
			if pv == nil {
				notes[key] = why
				continue
			}
			taken[pv.Name] = key.Namespace + "/" + key.Name
			choices[key] = choice{Claim: key.Namespace + "/" + key.Name, Volume: pv.Name, Storage: resolve.Storage(pv)}
		}
	}
	return choices, notes
}

// choose returns the smallest free volume that fits, and among equals the first by name. If there
// is none, it returns the reason.
func choose(w inputs, claim claimOf, taken map[string]string) (*corev1.PersistentVolume, note) {
	var fit []*corev1.PersistentVolume
	var why []string
	for _, pv := range w.volumes {
		if pv.Spec.StorageClassName != claim.class {
			continue
		}
		reason := unfit(claim.PersistentVolumeClaim, claim.class, pv, w.here)
		switch ref := pv.Spec.ClaimRef; {
		case ref != nil:
			reason = fmt.Sprintf("it is of claim %s/%s", ref.Namespace, ref.Name)
		case taken[pv.Name] != "":
			reason = "it is of claim " + taken[pv.Name]
		case len(w.named[pv.Name]) > 0:
			reason = "a claim names it in spec.volumeName"
		case reason == "" && w.owners[pv.Name] != resolve.Owner{}:
			reason = w.owners[pv.Name].Refuses(pv.Name, w.storage(pv), claim.PersistentVolumeClaim)
		}
		if reason == "" {
			fit = append(fit, pv)
		} else {
			why = append(why, pv.Name+": "+reason)
		}
	}
	if len(fit) == 0 {
		return nil, none(claim, why)
	}
	return slices.MinFunc(fit, func(a, b *corev1.PersistentVolume) int {
		return cmp.Or(a.Spec.Capacity.Storage().Cmp(*b.Spec.Capacity.Storage()), strings.Compare(a.Name, b.Name))
	}), note{}
}

func noVolume(text string) note  { return note{text, state.Cause{Code: state.NoVolume}} }
func badRecord(text string) note { return note{text, state.Cause{Code: state.BadRecord}} }
