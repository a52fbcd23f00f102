package doctor

import (
	"fmt"
	"path/filepath"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/storageid"
)

// storageID checks the id of this node in the names of volumes. A copy of a node that has the original's machine id
// cannot be told from it: each of the two sees itself only.
func (e *examination) storageID() {
	const check = "storage.id"
	machine, err := storageid.FromMachine(filepath.Join("/", e.Host, storageid.MachineFile))
	stored := storageid.Read(e.StateDir)
	used, _ := filepath.Glob(filepath.Join(e.StateDir, "state.db*")) // the pattern is good
	switch id := stored.Chosen; {
	case stored.Damaged != "":
		e.warn(check, stored.Damaged, "start csi-volmgr run, which has it in its journal, too; if it asks for the id, with "+
			"--storage-id=ID")
	case id != nil && id.From == storageid.Machine && machine != "" && machine != id.ID:
		e.warn(check, fmt.Sprintf("%s, of another machine's id", id), fmt.Sprintf("if this node is a copy of another one, "+
			"each deletes the other's volumes: stop the daemon here, move %s away and start it anew; if the machine was "+
			"replaced, start csi-volmgr run once with --storage-id=%s", e.StateDir, id))
	case id != nil:
		e.ok(check, fmt.Sprintf("%s (%s)", id, id.From))
	case !stored.Unset && len(used) > 0:
		e.ok(check, "not chosen yet; an earlier version used the node: "+storageid.None)
	case err != nil:
		e.warn(check, "none, and "+err.Error(), "no volume can be made: start csi-volmgr run with --storage-id=NAME, which "+
			"no other node has")
	default:
		e.ok(check, "not chosen yet; of the machine's id: "+machine)
	}
}
