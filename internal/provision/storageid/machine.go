package storageid

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
)

// MachineFile has the machine's id (machine-id(5)).
const MachineFile = "/etc/machine-id"

// application is this program's id for application-specific ids of a machine. `systemd-id128 machine-id
// --app-specific=` with it prints what FromMachine returns.
const application = "6b1f0a7e4c0d4f0e9d5a2f6c3b8e7d11"

// errNoMachine means that the machine has no id.
var errNoMachine = errors.New("the machine has no id")

// FromMachine returns the storage id that follows from the machine id in a file. As machine-id(5) asks, it is a
// hash that does not tell the machine id: sd_id128_get_machine_app_specific(3).
func FromMachine(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errNoMachine, err)
	}
	text := bytes.TrimSpace(b)
	machine := make([]byte, hex.DecodedLen(len(text)))
	if _, err := hex.Decode(machine, text); err != nil || len(machine) != 16 || bytes.Equal(machine, make([]byte, 16)) {
		return "", fmt.Errorf("%w: %s has %.40q", errNoMachine, path, text)
	}
	app, err := hex.DecodeString(application)
	if err != nil {
		return "", err
	}
	mac := hmac.New(sha256.New, machine)
	mac.Write(app)
	id := mac.Sum(nil)[:16]
	id[6] = id[6]&0x0f | 0x40 // version 4, variant 1: what systemd makes of it
	id[8] = id[8]&0x3f | 0x80
	return hex.EncodeToString(id), nil
}
