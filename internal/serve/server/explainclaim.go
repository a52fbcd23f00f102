package server

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
)

// key returns the claim's "namespace/name".
func (c ClaimStatus) key() string { return c.Namespace + "/" + c.Name }

// verdict returns the verdict on the controller's work for the claim.
func (c ClaimStatus) verdict() string {
	switch {
	case c.Refused, needsPerson(c.Cause), refused(c.Retry.retry()), c.Retry.Attempts >= stuckAfter:
		return Stuck
	case c.Call != "", c.Phase == "Bound" && c.Retry.Attempts > 0:
		return Working
	case c.Phase != "Bound" || c.Reason != "":
		return Waiting
	}
	return Fine
}

// ExplainClaim returns the lines of the explanation of a claim ("namespace/name"). It
// uses only known facts and asks no process and no driver.
func (s *Server) ExplainClaim(ctx context.Context, claim string) []string {
	f := s.facts()
	if s.cfg.Named != nil {
		all, _ := s.cfg.Named.NamedVolumes(ctx) // an error means that sources are not read yet; NotReady names them
		f.Named = slices.DeleteFunc(all, func(v NamedVolume) bool { return v.Claim != claim })
	}
	e, err := Explain(f, "pvc", claim)
	if err != nil {
		return []string{err.Error()}
	}
	lines := []string{"verdict: " + e.Verdict}
	for _, l := range e.Lines {
		lines = append(lines, l.Label+": "+oneLine(l.Text))
	}
	return lines
}

// explainPVC explains a claim: what it requests, and the state of its volume at the
// controller and on this node.
func (f Facts) explainPVC(e *Explanation) {
	i := slices.IndexFunc(f.Claims, func(c ClaimStatus) bool { return c.key() == e.Name })
	if i < 0 {
		f.unknown(e)
		return
	}
	c := f.Claims[i]
	class := "no class"
	if c.Class != "" {
		class = "class " + c.Class
	}
	e.add("wanted", "%s of %s", bytesOf(c.RequestedBytes), class)
	e.add("wanted by", "%s", f.usersOfClaim(c))
	if c.Volume != "" {
		e.add("done", "bound to %s%s, which has %s", c.Volume, ofDriver(c), bytesOf(c.CapacityBytes))
	}
	e.worsen(c.verdict())
	f.explainClaim(e, c)
	if c.Phase != "Bound" {
		f.explainWait(e, c.Cause, c)
	}
	here := false
	for _, v := range f.Volumes {
		if v.Volume.Spec.Claim != c.key() {
			continue
		}
		here = true
		e.add("volume", "%s, id %s", f.title(v.Volume.Spec.Value()), v.Volume.ID)
		if done := doneOf(v.Volume); done != "" {
			e.add("done", "%s", done)
		}
		f.explainHealth(e, string(v.Volume.ID))
		if s := stepOfVolume(f, v); s.pending() {
			s.explain(f, e)
		}
	}
	if !here && c.Phase == "Bound" {
		e.add("because", "nothing of its volume is on this node: no pod here uses it")
		f.explainHealthOf(e, c.key())
	}
}

func bytesOf(n int64) string {
	if n == 0 {
		return "an unknown size"
	}
	return count(int(n), "byte")
}

func ofDriver(c ClaimStatus) string {
	if c.Driver == "" {
		return ""
	}
	return " of driver " + string(c.Driver)
}

// usersOfClaim names the pods that use the claim.
func (f Facts) usersOfClaim(c ClaimStatus) string {
	var names []string
	for _, p := range f.Pods {
		uses := func(v manager.PodVolumeStatus) bool { return v.Claim == c.key() }
		if p.Listed && slices.ContainsFunc(p.Volumes, uses) {
			names = append(names, f.podEnding(p.Pod.Namespace+"/"+p.Pod.Name))
		}
	}
	if len(names) == 0 {
		return "no pod on this node"
	}
	return strings.Join(names, ", ")
}

func (f Facts) explainClaims(e *Explanation, v manager.PodVolumeStatus) {
	for _, c := range f.claimsOf(v) {
		f.explainClaim(e, c)
	}
}

// claimsOf returns the claim of a pod's volume, if any.
func (f Facts) claimsOf(v manager.PodVolumeStatus) []ClaimStatus {
	var out []ClaimStatus
	for _, c := range f.Claims {
		if v.Claim == c.key() {
			out = append(out, c)
		}
	}
	return out
}

// explainClaim adds the controller's account of the claim. For a bound claim, that is a
// pending or failed expansion: the volume is mounted but smaller than requested.
func (f Facts) explainClaim(e *Explanation, c ClaimStatus) {
	bound := c.Phase == "Bound"
	if bound && c.Reason == "" && c.Retry.Attempts == 0 {
		if c.Driver == "" && c.CapacityBytes > 0 && c.RequestedBytes > c.CapacityBytes {
			e.add("claim", "claim %s asks for %d bytes, and its PersistentVolume %s has %d", c.key(), c.RequestedBytes, c.Volume,
				c.CapacityBytes)
		}
		return
	}
	text := fmt.Sprintf("claim %s is %s", c.key(), c.Phase)
	if bound && c.RequestedBytes != c.CapacityBytes {
		text += fmt.Sprintf(", asks for %d bytes and has %d", c.RequestedBytes, c.CapacityBytes)
	}
	if c.Reason != "" {
		text += ": " + c.Reason
	}
	if r := c.Retry.retry(); r.Attempts > 0 {
		text += fmt.Sprintf("; %s (%s)", Failure(r), tries(r, f.Now))
	}
	e.add("claim", "%s", text)
	if !bound {
		return
	}
	e.worsen(c.verdict())
	if c.verdict() != Stuck || c.RequestedBytes == c.CapacityBytes {
		f.explainWait(e, c.Cause, c)
		return
	}
	e.add("next", "%s", f.nextOn(c.Cause, c.Retry.retry()))
	e.add("you can", "apply claim %s with the size that its volume has, or change what refuses the new size, its class, "+
		"its limit or its driver: csi-volmgr apply -f FILE", c.key())
}
