package manager

// Found is what a daemon found when it started.
type Found struct {
	// Volumes counts the volumes that the journal had records of, Unreadable
	// those of them whose record could not be read.
	Volumes, Unreadable int
	// Changed counts the volumes where something that the record says to be
	// present was not as it was left: unmounted meanwhile, or by a reboot.
	Changed int
}

// Found returns what was found at the start; all zero before [Manager.Run].
func (m *Manager) Found() Found {
	m.snapshot.mu.RLock()
	defer m.snapshot.mu.RUnlock()
	return m.snapshot.found
}
