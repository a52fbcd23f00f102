package holders

import (
	"os"
	"regexp"
	"strconv"
	"strings"
)

// Container describes the container that a process is in, as far as its cgroup path says.
type Container struct {
	// ID is the runtime's container id, taken from the path.
	ID string `json:"id,omitempty"`
	// Runtime is the runtime that the path names ("containerd", "docker", "crio",
	// "podman"); "" if it names none.
	Runtime string `json:"runtime,omitempty"`
	// Pod is the pod's uid; "" if the process is in none.
	Pod string `json:"pod,omitempty"`
	// Unit is the systemd service of a process that is in no container.
	Unit string `json:"unit,omitempty"`
}

// Runtimes name the cgroups of containers by plain path elements (cgroupfs) or by
// systemd scopes.
var (
	containerID = regexp.MustCompile(`^(?:(cri-containerd|docker|crio|libpod|nerdctl)-)?([0-9a-f]{64})(?:\.scope)?$`)
	podSlice    = regexp.MustCompile(`(?:^|-)pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_]` +
		`[0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?$`)
)

var runtimes = map[string]string{
	"cri-containerd": "containerd", "docker": "docker", "crio": "crio", "libpod": "podman", "nerdctl": "containerd",
}

// containerIn parses the text of /proc/PID/cgroup.
func containerIn(text string) Container {
	var c Container
	for line := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) < 3 {
			continue
		}
		before := ""
		for _, name := range strings.Split(fields[2], "/") {
			if m := containerID.FindStringSubmatch(name); m != nil {
				c.ID, c.Runtime = m[2], runtimes[m[1]]
				if c.Runtime == "" && before == "docker" {
					c.Runtime = "docker"
				}
			}
			if m := podSlice.FindStringSubmatch(name); m != nil {
				c.Pod = strings.ReplaceAll(m[1], "_", "-")
			}
			if strings.HasSuffix(name, ".service") {
				c.Unit = name
			}
			before = name
		}
	}
	if c.ID != "" {
		c.Unit = ""
	}
	return c
}

func (f *Finder) containerOf(pid int) Container {
	text, err := os.ReadFile(f.proc(strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return Container{} // the process has ended
	}
	return containerIn(string(text))
}
