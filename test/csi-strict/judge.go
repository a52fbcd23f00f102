package csistrict

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// hot is the least pause after an error before the same call is made again:
// CSI 1.13 requires back-off, and a shorter pause does not count as one. An event may end
// a pause (the wanted state changed, the driver is back), so maxHot in a row are no breach.
const (
	hot    = 100 * time.Millisecond
	maxHot = 2
)

// maxAsked is how often the driver may be asked for its node abilities by one
// connection: they do not change while it lives.
const maxAsked = 3

// seen is the state of a call's paths when it arrived.
type seen struct {
	// staging, parent: the staging path, the target's parent, is a directory.
	staging, parent bool
	// target: there is something at the target path; unmounted: nothing is mounted there.
	target, unmounted bool
}

// finding is a rule that a call breaks.
type finding struct {
	rule, text string
	// code is the answer; OK if the breach is only recorded.
	code codes.Code
}

// call is a request with the facts about it when it arrives.
type call struct {
	ctx     context.Context
	node    string // on which it arrived; "" if there is only one socket, and for controllers' calls
	id      uint64
	name    string
	req     proto.Message
	at      time.Time
	volume  string // its id; for CreateVolume, the name; for a group's call, the group
	path    string // the one that the call is about, if any
	request string // canonical, without secrets
	asked   int    // requests for abilities on its connection, including this one
	seen    seen
	found   []finding
	hot     int // how many such calls in a row came without a pause after an error
}

// breach records that the call breaks a rule, and gets code as its answer.
func (c *call) breach(code codes.Code, rule, format string, args ...any) {
	c.found = append(c.found, finding{rule, fmt.Sprintf(format, args...), code})
}

// code returns the answer that the breaches give the call, or OK.
func (c *call) refusal() (finding, bool) {
	for _, f := range c.found {
		if f.code != codes.OK {
			return f, true
		}
	}
	return finding{}, false
}

// judge knows the rules. It is not safe for concurrent use.
type judge struct {
	model *Model
	// script is the current one; told the one that the CO last learned from the
	// answers to its requests for abilities.
	script, told Script
	nodeID       string
	// zones are the zones of the nodes that share the storage, by node id; empty: there is one node.
	zones map[string]string
	// since is when this process began: calls in flight before that are unknown.
	since    time.Time
	inFlight map[string]*call
	// open are the unanswered requests, by the object that they make; cuts are the
	// volumes whose snapshot a request is making.
	open map[string]string
	cuts map[string]bool
}

// rules has the rules of each call.
var rules = map[string]func(*judge, *call, *Volume){
	"NodeStageVolume":           (*judge).stage,
	"NodeUnstageVolume":         (*judge).unstage,
	"NodePublishVolume":         (*judge).publish,
	"NodeUnpublishVolume":       (*judge).unpublish,
	"NodeExpandVolume":          (*judge).nodeExpand,
	"NodeGetVolumeStats":        (*judge).stats,
	"NodeGetVolumeHealth":       (*judge).health,
	"NodeGetStorageHealth":      (*judge).storage,
	"ControllerGetVolumeHealth": (*judge).controllerHealth,
	"ControllerPublishVolume":   (*judge).attach,
	"ControllerUnpublishVolume": (*judge).detach,
	"ControllerExpandVolume":    (*judge).controllerExpand,
	"ControllerModifyVolume":    (*judge).modify,
	"DeleteVolume":              (*judge).remove,
	"CreateVolume":              (*judge).create,
	"NodeGetCapabilities":       (*judge).capabilities,

	"DeleteSnapshot":                 (*judge).removeSnapshot,
	"GroupControllerGetCapabilities": (*judge).groupCapabilities,
	"CreateVolumeGroupSnapshot":      (*judge).cutGroup,
	"DeleteVolumeGroupSnapshot":      (*judge).removeGroup,
	"GetVolumeGroupSnapshot":         (*judge).showGroup,
	"GetMetadataAllocated":           (*judge).allocated,
	"GetMetadataDelta":               (*judge).delta,
}

// begin judges a call that arrives. busy: another one for the volume, whose
// caller gave up, is still at work; the answer is then ABORTED.
func (j *judge) begin(c *call) (busy bool) {
	v := j.model.Volumes[c.volume]
	j.limits(c)
	j.secrets(c)
	if rule, ok := rules[c.name]; ok {
		rule(j, c, v)
	}
	j.repetition(c, v)
	j.unanswered(c)
	j.cutting(c)
	if c.volume == "" {
		return false
	}
	key := c.flight()
	if other, ok := j.inFlight[key]; ok {
		if other.ctx.Err() == nil {
			c.breach(codes.Aborted, "N-21", "%s arrived while %s is in flight for the volume or group", c.name, other.name)
		}
		return true
	}
	j.inFlight[key] = c
	return false
}

// flight returns the key under which a call must be the only one in flight: the volume or group,
// per socket, since another program calls at another socket. Statistics, health and reading
// a group, which change nothing, have keys of their own.
func (c *call) flight() string {
	key := c.volume
	switch c.name {
	case "NodeGetVolumeStats":
		key = "stats " + key
	case "NodeGetVolumeHealth", "ControllerGetVolumeHealth":
		key = "health " + key
	case "GetVolumeGroupSnapshot":
		key = "get " + key
	}
	if c.node != "" {
		key += " on " + c.node
	}
	return key
}

// repetition: UNIMPLEMENTED must not be repeated unless the driver's abilities were
// read again (N-31); a failed call is repeated after a pause (N-30); an expansion that
// the volume's use forbids is not repeated unchanged (N-102).
func (j *judge) repetition(c *call, v *Volume) {
	if v == nil {
		return
	}
	last, ok := v.Last[c.key()]
	if !ok || last.Request != c.request || last.At.Before(j.since) {
		return
	}
	switch {
	case codes.Code(last.Code) == codes.OK:
	case codes.Code(last.Code) == codes.Unimplemented && last.Asked == j.model.Asked:
		c.breach(codes.OK, "N-31", "%s again after UNIMPLEMENTED, and the driver was not asked for its abilities since", c.name)
	case codes.Code(last.Code) == codes.FailedPrecondition && c.name == "NodeExpandVolume":
		c.breach(codes.OK, "N-102", "NodeExpandVolume again after FAILED_PRECONDITION")
	case c.at.Sub(last.At) >= hot:
	case last.Hot < maxHot:
		c.hot = last.Hot + 1
	default:
		c.breach(codes.OK, "N-30", "%s again %v after %v: not backed off", c.name, c.at.Sub(last.At), codes.Code(last.Code))
	}
}

func (c *call) key() string { return c.name + " " + c.path }

// accept records in the model what a CO may believe after it has made the call.
func (j *judge) accept(c *call) {
	v := j.model.Volumes[c.volume]
	if v == nil {
		return
	}
	switch c.name {
	case "NodeStageVolume":
		v.StagePath = c.path
		v.Stage = begun(v.Stage, c)
	case "NodePublishVolume":
		if v.Targets == nil {
			v.Targets = map[string]Fact{}
		}
		v.Targets[c.path] = begun(v.Targets[c.path], c)
	case "ControllerPublishVolume":
		v.Attach = begun(v.Attach, c)
	case "NodeUnstageVolume":
		v.Stage = leaving(v.Stage)
	case "NodeUnpublishVolume":
		// Where a reboot has removed the mount, nothing is taken from a pod: a Publish may follow
		// whatever the answer.
		if f, ok := v.Targets[c.path]; ok && !c.seen.unmounted {
			v.Targets[c.path] = leaving(f)
		}
	case "ControllerUnpublishVolume":
		if !elsewhere(c, v) {
			v.Attach = leaving(v.Attach)
		}
	}
}

func begun(f Fact, c *call) Fact {
	if f.Phase != Present {
		f.Phase = Maybe
	}
	f.Request, f.Capability = c.request, capabilityText(c.req)
	return f
}

func leaving(f Fact) Fact {
	if f.Phase != Absent {
		f.Phase = Leaving
	}
	return f
}

// end records the answer to a call in the model. heard: its caller was still
// connected. odd: the script made the driver misbehave.
func (j *judge) end(c *call, code codes.Code, heard, odd bool, at time.Time) {
	if j.inFlight[c.flight()] == c {
		delete(j.inFlight, c.flight())
	}
	j.answered(c, code, heard)
	v := j.model.Volumes[c.volume]
	if v == nil {
		return
	}
	if v.Last == nil {
		v.Last = map[string]ended{}
	}
	v.Last[c.key()] = ended{At: at, Code: uint32(code), Request: c.request, Asked: j.model.Asked, Hot: c.hot}
	if !heard || code != codes.OK && !(code == codes.NotFound && removes(c.name)) {
		return
	}
	switch c.name {
	case "NodeStageVolume":
		v.Stage.Phase, v.Stage.Odd = Present, odd
	case "NodePublishVolume":
		f := v.Targets[c.path]
		f.Phase, f.Odd = Present, odd
		v.Targets[c.path] = f
	case "ControllerPublishVolume":
		v.Attach.Phase = Present
	case "NodeUnstageVolume":
		v.Stage = Fact{}
		maps.DeleteFunc(v.Last, func(key string, _ ended) bool { return strings.HasPrefix(key, "NodeExpandVolume ") })
	case "NodeUnpublishVolume":
		delete(v.Targets, c.path)
		if v.Ephemeral && len(v.Targets) == 0 {
			delete(j.model.Volumes, c.volume)
		}
	case "ControllerUnpublishVolume":
		if elsewhere(c, v) {
			return
		}
		v.Attach, v.NodeID = Fact{}, ""
		if len(j.zones) > 0 {
			v.StagePath = "" // the next node has a path of its own
		}
	case "NodeExpandVolume":
		v.NodeSizeBytes = v.SizeBytes
	}
}

func removes(name string) bool {
	return name == "NodeUnstageVolume" || name == "NodeUnpublishVolume" || name == "ControllerUnpublishVolume"
}
