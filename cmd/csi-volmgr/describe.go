package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/client"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/spf13/cobra"
)

func (p *program) describeCommand() *cobra.Command {
	var ns, output string
	cmd := &cobra.Command{
		Use:   "describe (pod|volume|driver) NAME",
		Short: "Show one object in full",
		Example: `  csi-volmgr describe volume data
  csi-volmgr describe pod web -o yaml`,
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := inNamespace(cmd, &ns, args, "pods", "volumes", "drivers")
			if err != nil {
				return err
			}
			c := p.client()
			defer c.Close()
			if t.kind == "pods" {
				t.name = ns + "/" + t.name
			}
			return p.describe(cmd.Context(), c, t, output)
		},
	}
	namespaceFlag(cmd, &ns)
	outputFlag(cmd, &output)
	p.completes(cmd, "pod", "volume", "driver")
	return cmd
}

func (p *program) describe(ctx context.Context, c *client.Client, t target, output string) error {
	o := getOptions{output: output, names: []string{t.name}}
	switch t.kind {
	case "pods":
		return describe(ctx, p, o, podResource(c))
	case "volumes":
		return describe(ctx, p, o, volumeResource(c))
	default:
		return describe(ctx, p, o, driverResource(c))
	}
}

// describe shows the one item of a resource that o names.
func describe[T any](ctx context.Context, p *program, o getOptions, r resource[T]) error {
	all, err := r.list(ctx)
	if err != nil {
		return err
	}
	item, err := r.named(all, o.names[0])
	if err != nil {
		return err
	}
	if structured(o.output) {
		return p.document(item, o.output)
	}
	s := &sheet{now: p.look(o.output)}
	switch v := any(item).(type) {
	case server.PodStatus:
		s.pod(v)
	case server.VolumeStatus:
		s.volume(v)
	case server.DriverStatus:
		s.driver(v)
	}
	return s.write(p)
}

// sheet is the output of describe: names and values, some of them indented.
type sheet struct {
	now   view
	lines []string
}

func (s *sheet) add(depth int, name, value string) {
	s.lines = append(s.lines, strings.Repeat("  ", depth)+name+":\t"+plain(value))
}

// addSome adds a value unless it is empty.
func (s *sheet) addSome(depth int, name, value string) {
	if value != "" && value != none {
		s.add(depth, name, value)
	}
}

func (s *sheet) write(p *program) error {
	var b strings.Builder
	tw := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	for _, l := range s.lines {
		_, _ = fmt.Fprintln(tw, l)
	}
	_ = tw.Flush() // a Builder accepts every write
	var out strings.Builder
	for line := range strings.Lines(b.String()) {
		out.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return writeAll(p.stdout, out.String())
}

func (s *sheet) pod(p server.PodStatus) {
	s.add(0, "Name", p.Pod.Name)
	s.add(0, "Namespace", p.Pod.Namespace)
	s.add(0, "UID", string(p.Pod.UID))
	s.addSome(0, "Service account", p.Pod.ServiceAccount)
	s.add(0, "Status", podState(p))
	s.add(0, "Wanted", yesNo(p.Listed))
	s.add(0, "Volumes", fmt.Sprintf("%d, %d mounted", len(p.Volumes), mountedOf(p)))
	for _, v := range p.Volumes {
		s.add(1, strings.Join(v.Names, ","), "")
		s.addSome(2, "Driver", string(v.Driver))
		s.addSome(2, "Claim", v.Claim)
		s.addSome(2, "Volume", string(v.ID))
		s.addSome(2, "Mode", string(v.Mode))
		s.add(2, "Phase", v.Phase.String())
		s.add(2, "Mounted", yesNo(v.Mounted))
		s.addSome(2, "Host path", v.HostPath)
		s.add(2, "Access", access(v.ReadOnly))
		s.addSome(2, "Size", size(v.SizeBytes))
		s.addSome(2, "Step", v.Step)
		s.addSome(2, "Since", s.now.age(v.Since))
		s.addSome(2, "Blocked by", v.BlockedBy)
		s.retry(2, v.Retry)
	}
}

func (s *sheet) retry(depth int, r server.RetryStatus) {
	if r.Attempts == 0 {
		return
	}
	s.add(depth, "Failures", fmt.Sprintf("%d, the first %s ago", r.Attempts, s.now.age(r.Since)))
	s.add(depth, "Last error", r.Failure())
	switch {
	case r.Final:
		s.add(depth, "Next try", "not by itself")
	case r.NotBefore.After(s.now.now):
		s.add(depth, "Next try", "in "+server.Age(s.now.now, r.NotBefore))
	default:
		s.add(depth, "Next try", "now")
	}
}

func (s *sheet) volume(st server.VolumeStatus) {
	v := st.Volume
	s.add(0, "ID", string(v.ID))
	s.addSome(0, "Quarantined", st.Quarantined)
	s.add(0, "Status", volumeState(st))
	s.addSome(0, "Size", size(v.SizeBytes))
	s.spec(v.Spec.Value())
	s.add(0, "Wanted by", orNone(joined(st.Wanted)))
	s.addSome(0, "Begun for", joined(v.For))
	switch {
	case st.Call.Kind != plan.None:
		s.add(0, "Call in flight", st.Call.String()+", for "+s.now.age(st.Since))
	case st.Held.Reason != "":
		s.add(0, "Waits with", orNone(st.Held.Step.String())+", for "+s.now.age(st.Since))
		s.add(0, "Waits for", st.Held.Reason)
	}
	if v.Needs.Attach || v.Attach.Phase != state.Absent {
		s.add(0, "Attach", v.Attach.Phase.String())
		s.retry(1, v.Attach.Retry())
	}
	if v.Needs.Stage || v.Stage.Phase != state.Absent {
		s.add(0, "Stage", v.Stage.Phase.String())
		s.addSome(1, "Path", v.Spec.StagePath)
		s.retry(1, v.Stage.Retry())
	}
	if v.ExpandFailed != nil {
		s.add(0, "Expand", "")
		s.retry(1, *v.ExpandFailed)
	}
	for _, uid := range slices.Sorted(maps.Keys(v.Mounts)) {
		s.mount(v.Mounts[uid])
	}
}

func (s *sheet) spec(spec server.Spec) {
	s.addSome(0, "Driver", string(spec.Driver))
	s.addSome(0, "Handle", spec.Handle)
	s.addSome(0, "Name", spec.Name)
	s.addSome(0, "Claim", spec.Claim)
	s.addSome(0, "Mode", string(spec.Mode))
	s.addSome(0, "File system", spec.FSType)
	s.addSome(0, "Mount options", strings.Join(spec.MountFlags, ","))
	s.addSome(0, "Access modes", accessModes(spec.AccessModes))
	if len(spec.Context) > 0 {
		s.add(0, "Attributes", "")
	}
	for _, k := range slices.Sorted(maps.Keys(spec.Context)) {
		s.add(1, k, spec.Context[k])
	}
	for _, r := range []struct {
		name string
		ref  server.SecretRef
	}{
		{"Attach secret", spec.AttachRef},
		{"Stage secret", spec.StageRef},
		{"Publish secret", spec.PublishRef},
		{"Expand secret", spec.ExpandRef},
	} {
		if r.ref.Name != "" {
			s.add(0, r.name, r.ref.Namespace+"/"+r.ref.Name)
		}
	}
}

func (s *sheet) mount(m server.VolumeMount) {
	s.add(0, "Mount for", fmt.Sprintf("%s/%s (%s)", m.Pod.Namespace, m.Pod.Name, m.Pod.UID))
	s.add(1, "Phase", m.Phase.String())
	s.add(1, "Names", strings.Join(m.Names, ","))
	s.add(1, "Path", m.Target)
	s.addSome(1, "Device", m.DevicePath)
	s.add(1, "Access", access(m.ReadOnly))
	s.retry(1, m.Retry())
}

func (s *sheet) driver(d server.DriverStatus) {
	s.add(0, "Name", string(d.Name))
	s.add(0, "Status", driverState(d)+", for "+s.now.age(d.Since))
	s.addSome(0, "Problem", driverProblem(d))
	s.add(0, "Generation", fmt.Sprint(d.Generation))
	s.addSome(0, "Version", d.Version)
	s.addSome(0, "Endpoint", d.Endpoint)
	s.add(0, "In this process", yesNo(d.Builtin))
	s.addSome(0, "Node id", d.NodeID)
	if len(d.Topology) > 0 {
		s.add(0, "Topology", "")
	}
	for _, k := range slices.Sorted(maps.Keys(d.Topology)) {
		s.add(1, k, d.Topology[k])
	}
	if d.MaxVolumes > 0 {
		s.add(0, "Most volumes", fmt.Sprint(d.MaxVolumes))
	}
	s.add(0, "Volumes", fmt.Sprint(d.Volumes))
	s.add(0, "Calls in flight", fmt.Sprint(d.Calls))
	s.add(0, "Capabilities", orNone(strings.Join(d.Capabilities, ", ")))
	if !d.Builtin {
		s.controller(d)
	}
}

// controller adds the driver's Controller service.
func (s *sheet) controller(d server.DriverStatus) {
	c := d.Controller
	switch {
	case c == nil:
		return
	case c.Endpoint == "" && !c.Up:
		s.add(0, "Controller", "none: "+c.Problem)
		return
	case c.Endpoint == "":
		s.add(0, "Controller", "at the same endpoint")
	default:
		s.add(0, "Controller", controllerState(*c)+", for "+s.now.age(c.Since))
		s.addSome(1, "Problem", c.Problem)
		s.add(1, "Generation", fmt.Sprint(c.Generation))
		s.addSome(1, "Version", c.Version)
		s.add(1, "Endpoint", c.Endpoint)
	}
	s.add(1, "Capabilities", orNone(strings.Join(c.Capabilities, ", ")))
}

func controllerState(c server.ControllerStatus) string {
	if c.Up {
		return "Up"
	}
	return "Down"
}

func joined(uids []state.PodUID) string {
	out := make([]string, len(uids))
	for i, u := range uids {
		out[i] = string(u)
	}
	return strings.Join(out, ", ")
}
