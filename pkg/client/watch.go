package client

import (
	"context"
	"net/url"

	api "github.com/csi-volmgr/csi-volmgr/internal/serve/client"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
)

// PodEvent is one event of a watch.
type PodEvent struct {
	// Type is "set" for a new or changed pod, "gone" for a removed one, and "listed", without
	// an item, once after the events for all pods that were there at first.
	Type string `json:"type"`
	// Item is the pod, as last sent if it is gone.
	Item PodStatus `json:"item"`
}

// WatchPods calls each for every event of the pods. It returns the error of each, of the
// context when that ends, or ErrCut when the daemon stops; never nil.
func (c *Client) WatchPods(ctx context.Context, each func(PodEvent) error) error {
	return refusal(api.Stream(ctx, c.api, "/v1/pods?watch=true", func(e PodEvent) (bool, error) {
		return false, each(e)
	}))
}

// Goal is what a wait waits for.
type Goal string

// The goals.
const (
	// Mounted: a source wants the pod, and all of its volumes are mounted as wanted.
	Mounted Goal = "mounted"
	// Unmounted: no volume of the pod is mounted.
	Unmounted Goal = "unmounted"
)

// Progress is the state of a pod during a wait.
type Progress struct {
	// Pod is the pod; only its name is set if it is not Known.
	Pod PodStatus `json:"pod"`
	// Known: a source wants the pod, or some of its volumes are not cleaned up yet.
	Known bool `json:"known"`
	// NotReady lists what the daemon has not read yet.
	NotReady []string `json:"notReady,omitempty"`
	// Done: the pod has reached the goal.
	Done bool `json:"done,omitempty"`
}

// Wait waits until a pod has reached the goal or the context ends, and calls progress, if
// it is not nil, for every change. It returns the pod's last state, also with an error. A
// pod that no source wants yet is waited for.
func (c *Client) Wait(
	ctx context.Context, namespace, name string, goal Goal, progress func(Progress),
) (last Progress, err error) {
	query := url.Values{"for": {string(goal)}, "timeout": {server.MaxWait.String()}}
	path := podPath(namespace, name) + "/wait?" + query.Encode()
	// The daemon ends a wait after its timeout; only the context ends this one.
	for err == nil && !last.Done {
		err = api.Stream(ctx, c.api, path, func(l waitLine) (bool, error) {
			last = l.Progress
			if progress != nil {
				progress(last)
			}
			return l.Done || l.TimedOut, nil
		})
	}
	return last, refusal(err)
}

// waitLine is one line of a wait; on the last one, one of Done and TimedOut is set.
type waitLine struct {
	Progress
	TimedOut bool `json:"timedOut"`
}
