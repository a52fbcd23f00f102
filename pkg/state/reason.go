package state

// Reason says why a call failed if its code does not, so that advice does not depend on
// the text of an error. "" means unknown.
type Reason string

// The reasons that any driver may give.
const (
	// NoEffect means that the driver answered OK, but the kernel shows otherwise.
	NoEffect Reason = "NoEffect"
	// Unreadable means that the driver's answer cannot be parsed.
	Unreadable Reason = "Unreadable"
)

// The reasons of built-in kinds.
const (
	// NotAllowed means that the operator's flags do not allow the path.
	NotAllowed Reason = "NotAllowed"
	// WrongType means that the path has a file of another type than the volume wants.
	WrongType Reason = "WrongType"
	// NotThere means that the path does not exist.
	NotThere Reason = "NotThere"
	// BadSource means that the volume's source, options or file system ask for something
	// impossible.
	BadSource Reason = "BadSource"
	// NoObject means that an object whose content the volume shows, or a key of it, is
	// unknown.
	NoObject Reason = "NoObject"
	// NoIssuer means that this node lacks the cluster or key that issues the volume's
	// content.
	NoIssuer Reason = "NoIssuer"
	// NoProgram means that a program that the kind needs is not installed.
	NoProgram Reason = "NoProgram"
	// WrongDisk means that the disk is not proven to be the volume's.
	WrongDisk Reason = "WrongDisk"
	// DiskInUse means that something else on this node uses the disk.
	DiskInUse Reason = "DiskInUse"
	// NotBlank means that the disk has data that is not a known file system.
	NotBlank Reason = "NotBlank"
	// OtherFS means that the disk has another file system than the one asked for.
	OtherFS Reason = "OtherFS"
	// NoImage means that the image is not on this node.
	NoImage Reason = "NoImage"
	// BadImage means that the image's layers are damaged or are not a file system.
	BadImage Reason = "BadImage"
	// NoSpace means that a disk or a quota is full.
	NoSpace Reason = "NoSpace"
	// ServerAway means that the API server is unreachable, so a token, secret or
	// certificate is missing.
	ServerAway Reason = "ServerAway"
)

// Reasons lists the reasons of built-in kinds.
func Reasons() []Reason {
	return []Reason{
		NotAllowed, WrongType, NotThere, BadSource, NoObject, NoIssuer, NoProgram, WrongDisk, DiskInUse, NotBlank, OtherFS,
		NoImage, BadImage, NoSpace, ServerAway,
	}
}

// Transient reports whether the cause may end without a change to the volume: an object, a
// path or a disk appears, space is freed, or the API server comes back.
func (r Reason) Transient() bool {
	switch r {
	case "", NoEffect, Unreadable, NotThere, NoObject, WrongDisk, DiskInUse, NoSpace, ServerAway:
		return true
	default:
		return false
	}
}
