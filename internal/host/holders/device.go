package holders

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
)

// maxDepth limits how many layers of devices on devices are followed.
const maxDepth = 8

// addDevices adds to the report the devices that are built on the files and devices in
// question.
func (s *search) addDevices() {
	backing, _ := filepath.Glob(s.f.sys("block", "loop*", "loop", "backing_file")) // the pattern is valid
	for _, file := range backing {
		data, err := os.ReadFile(file)
		path := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), " (deleted)")
		if err == nil && s.ownTable.matches(path, 0) {
			s.found.Devices = append(s.found.Devices, Device{filepath.Base(filepath.Dir(filepath.Dir(file))), "loop", path})
		}
	}
	for _, dev := range s.blocks {
		link, err := os.Readlink(s.f.sys("dev", "block", mount.DeviceText(dev)))
		if err == nil {
			s.addDevicesOn(filepath.Base(link), 0)
		}
	}
}

// addDevicesOn adds the devices on top of the named block device.
func (s *search) addDevicesOn(name string, depth int) {
	holders, err := os.ReadDir(s.f.sys("class", "block", name, "holders"))
	if err != nil || depth > maxDepth {
		return
	}
	for _, h := range holders {
		d := Device{h.Name(), "holder", name}
		if dm, err := os.ReadFile(s.f.sys("class", "block", h.Name(), "dm", "name")); err == nil {
			d.Kind, d.Of = "device-mapper", strings.TrimSpace(string(dm))+" on "+name
		}
		if slices.Contains(s.found.Devices, d) {
			continue
		}
		s.found.Devices = append(s.found.Devices, d)
		s.addDevicesOn(h.Name(), depth+1)
	}
}
