package mount

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// device returns a device number in this package's form, major<<32|minor.
func device(major, minor uint32) uint64 { return uint64(major)<<32 | uint64(minor) }

// DeviceOf converts a device number of stat(2) (st_dev, st_rdev) to the form of mount
// table rows, major<<32|minor.
func DeviceOf(dev uint64) uint64 { return device(unix.Major(dev), unix.Minor(dev)) }

// DeviceText formats such a number as sysfs and mountinfo do, major:minor.
func DeviceText(dev uint64) string { return fmt.Sprintf("%d:%d", dev>>32, uint32(dev)) }

// parseDevice is the inverse of DeviceText.
func parseDevice(s string) (uint64, error) {
	major, minor, _ := strings.Cut(s, ":")
	maj, err := strconv.ParseUint(major, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("device %q: %w", s, err)
	}
	mnr, err := strconv.ParseUint(minor, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("device %q: %w", s, err)
	}
	return device(uint32(maj), uint32(mnr)), nil
}
