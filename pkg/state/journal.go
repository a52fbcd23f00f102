package state

// Loaded is the content of a journal.
type Loaded struct {
	Volumes map[VolumeID]Volume
	// Quarantined says, by key, why a record could not be read. Its bytes stay in the
	// journal, and the caller must count its volume as in use.
	Quarantined map[VolumeID]string
	// BootID is the boot under which the records were last written; "" if never set.
	BootID string
	// Recovery says whether the newest records may be lost.
	Recovery Recovery
}

// Values are the values of one bucket, by key.
type Values struct {
	Sound map[string][]byte
	// Unreadable says why a value could not be read. Its bytes stay in the journal until
	// its key is written or deleted. The caller must not treat the value as absent.
	Unreadable map[string]string
}

// Recovery says that the journal may have lost its newest records. It stays in the
// journal until an operator accepts it, because a mount without a record may be in use.
type Recovery struct {
	// Why says what was wrong with the file; "" means that nothing was lost.
	Why string `json:"why"`
}

// Lost reports whether records may be lost.
func (r Recovery) Lost() bool { return r.Why != "" }
