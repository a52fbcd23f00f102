package manager

// Found is what a daemon found when it started.
type Found struct {
	// Volumes counts the records in the journal, Unreadable those that could not be read.
	Volumes, Unreadable int
	// Changed counts the volumes with a fact that was present in the record and no longer
	// on the host, because it was unmounted meanwhile or the node was rebooted.
	Changed int
}

// Found returns what the daemon found when it started; all zero before [Manager.Run].
func (m *Manager) Found() Found {
	m.snapshot.mu.RLock()
	defer m.snapshot.mu.RUnlock()
	return m.snapshot.found
}
