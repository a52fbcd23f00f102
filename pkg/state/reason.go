package state

// Reason says what is wrong with a call where its code does not, so that advice is not
// made from the text of an error. "" is none that is known.
type Reason string

// The reasons of drivers of any kind.
const (
	// NoEffect: the driver answered OK, and the kernel shows otherwise.
	NoEffect Reason = "NoEffect"
	// Unreadable: what the driver sent cannot be read.
	Unreadable Reason = "Unreadable"
)

// The reasons of built-in kinds.
const (
	// NotAllowed: the operator's flags do not allow the path.
	NotAllowed Reason = "NotAllowed"
	// WrongType: what is at the path is not of the type that the volume wants.
	WrongType Reason = "WrongType"
	// NotThere: nothing is at the path.
	NotThere Reason = "NotThere"
	// BadSource: the volume's source, its options or its file system say what cannot be done.
	BadSource Reason = "BadSource"
	// NoObject: an object that the volume shows, or a key of it, is not known.
	NoObject Reason = "NoObject"
	// NoIssuer: what the volume shows is issued by a cluster or a key that this node does not have.
	NoIssuer Reason = "NoIssuer"
	// NoProgram: a program that the kind needs is not installed.
	NoProgram Reason = "NoProgram"
	// WrongDisk: it is not proven that the disk is the volume's.
	WrongDisk Reason = "WrongDisk"
	// DiskInUse: something else on this node has the disk.
	DiskInUse Reason = "DiskInUse"
	// NotBlank: the disk has data that is no file system that is known.
	NotBlank Reason = "NotBlank"
	// OtherFS: the disk has another file system than is asked for.
	OtherFS Reason = "OtherFS"
	// NoImage: the image is not on this node.
	NoImage Reason = "NoImage"
	// BadImage: the image's layers are damaged, or no file system.
	BadImage Reason = "BadImage"
	// NoSpace: a disk or a quota is full.
	NoSpace Reason = "NoSpace"
	// ServerAway: the API server is away, so that there is no token, secret or certificate.
	ServerAway Reason = "ServerAway"
)

// Reasons lists those of built-in kinds.
func Reasons() []Reason {
	return []Reason{
		NotAllowed, WrongType, NotThere, BadSource, NoObject, NoIssuer, NoProgram, WrongDisk, DiskInUse, NotBlank, OtherFS,
		NoImage, BadImage, NoSpace, ServerAway,
	}
}

// Passes reports whether what is wrong may end by another's doing that is under way:
// an object, a path or a disk appears, room is made, the API server is back.
func (r Reason) Passes() bool {
	switch r {
	case "", NoEffect, Unreadable, NotThere, NoObject, WrongDisk, DiskInUse, NoSpace, ServerAway:
		return true
	default:
		return false
	}
}
