package operate

import (
	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
)

// NodeIDProblems returns a list of the drivers with volumes attached to a node id that they no longer give this node.
func NodeIDProblems(others func() []controller.OtherNodeID) func() []source.Problem {
	return func() (out []source.Problem) {
		for _, o := range others() {
			where := "driver " + string(o.Driver)
			out = append(out, source.Problem{Provider: server.SourceDrivers, Where: where, Text: o.String()})
		}
		return out
	}
}
