package away

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/diskfs"
	"github.com/csi-volmgr/csi-volmgr/internal/host/outage"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/disk"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/fc"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/files"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/hostpath"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/image"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/image/oci"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/image/unpack"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/iscsi"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/local"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/netfs"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/program"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/content"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// meaning is the reason code for an error.
type meaning struct {
	err    error
	reason state.Reason
}

// meanings lists the errors that users can act on, more specific ones first.
func meanings() []meaning {
	return []meaning{
		{outage.ErrAway, state.ServerAway},
		{hostpath.ErrDenied, state.NotAllowed},
		{hostpath.ErrType, state.WrongType},
		{local.ErrType, state.WrongType},
		{diskfs.ErrType, state.BadSource},
		{diskfs.ErrOption, state.BadSource},
		{iscsi.ErrSource, state.BadSource},
		{fc.ErrSource, state.BadSource},
		{netfs.ErrSource, state.BadSource},
		{image.ErrPolicy, state.BadSource},
		{oci.ErrReference, state.BadSource},
		{content.ErrNeedsCluster, state.NoIssuer},
		{content.ErrNoIssuer, state.NoIssuer},
		{content.ErrNotFound, state.NoObject},
		{content.ErrNoKey, state.NoObject},
		{content.ErrPath, state.BadSource},
		{content.ErrField, state.BadSource},
		{content.ErrVariable, state.BadSource},
		{files.ErrConfig, state.BadSource},
		{program.ErrMissing, state.NoProgram},
		{disk.ErrIdentity, state.WrongDisk},
		{disk.ErrInUse, state.DiskInUse},
		{disk.ErrNotBlank, state.NotBlank},
		{oci.ErrNotFound, state.NoImage},
		{image.ErrNever, state.NoImage},
		{unpack.ErrFull, state.NoSpace},
		{unpack.ErrLayer, state.BadImage},
		{oci.ErrDigest, state.BadImage},
		{unix.ENOSPC, state.NoSpace},
		{unix.EDQUOT, state.NoSpace},
		{fs.ErrNotExist, state.NotThere},
	}
}

// Reason returns the reason code for an error of a built-in kind, or "" if there is
// none.
func Reason(err error) state.Reason {
	if e, ok := errors.AsType[*state.CallError](err); ok {
		if e.Reason != "" {
			return e.Reason
		}
		if e.Code == state.FilesystemMismatch {
			return state.OtherFS
		}
	}
	for _, m := range meanings() {
		if errors.Is(err, m.err) {
			return m.reason
		}
	}
	return ""
}
