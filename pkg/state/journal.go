package state

// Loaded is what a journal holds.
type Loaded struct {
	Volumes map[VolumeID]Volume
	// Quarantined holds, by key, why a record could not be read. Its bytes stay
	// in the journal, and its loader must count it as in use.
	Quarantined map[VolumeID]string
	// BootID is the boot under which the records were last written; "" if never set.
	BootID string
	// Recovery says whether the newest records may be lost.
	Recovery Recovery
}

// Values are those of one bucket, by key.
type Values struct {
	Sound map[string][]byte
	// Unreadable says why a value could not be read. Its bytes stay in the journal until
	// its key is written or deleted. Its owner must not take it for absent.
	Unreadable map[string]string
}
