package holders

import (
	"os"
	"regexp"
	"strconv"
	"strings"
)

// Container is what a cgroup path says of the container that a process is in.
type Container struct {
	// ID is the runtime's id of it, as the path has it.
	ID string `json:"id,omitempty"`
	// Runtime is what the path says of the runtime ("containerd", "docker",
	// "crio", "podman"); "" where it says nothing.
	Runtime string `json:"runtime,omitempty"`
	// Pod is the uid of the pod; "" where it is in none.
	Pod string `json:"pod,omitempty"`
	// Unit is the systemd service that the process belongs to, where it is in no container.
	Unit string `json:"unit,omitempty"`
}

// How the runtimes name the cgroups of their containers: by a path of plain
// names (cgroupfs) or by systemd scopes.
var (
	containerID = regexp.MustCompile(`^(?:(cri-containerd|docker|crio|libpod|nerdctl)-)?([0-9a-f]{64})(?:\.scope)?$`)
	podSlice    = regexp.MustCompile(`(?:^|-)pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_]` +
		`[0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?$`)
)

var runtimes = map[string]string{
	"cri-containerd": "containerd", "docker": "docker", "crio": "crio", "libpod": "podman", "nerdctl": "containerd",
}

// containerIn reads the text of /proc/PID/cgroup.
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
		return Container{} // it has ended
	}
	return containerIn(string(text))
}
