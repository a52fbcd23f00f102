package server

import (
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
)

// Facts is all that an explanation is made from. It is a value.
type Facts struct {
	Pods              []manager.PodStatus
	Volumes           []manager.VolumeStatus
	Drivers           []manager.DriverStatus
	Claims            []ClaimStatus
	PersistentVolumes []PVStatus
	Problems          []Problem
	Sockets           []SocketStatus
	NotReady          []string
	Now               time.Time
}

// Explanation is one causal chain.
type Explanation struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Verdict is fine, working, waiting, stuck or unknown.
	Verdict string `json:"verdict"`
	Lines   []Line `json:"lines"`
}

// Line is one link of it.
type Line struct {
	Label string `json:"label"`
	Text  string `json:"text"`
}

// Explain says why something is not there.
func Explain(f Facts, kind, name string) (Explanation, error) {
	return Explanation{Kind: kind, Name: name}, nil
}
