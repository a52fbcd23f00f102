package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

const (
	// redrawEvery is how often the view is redrawn, with the ages at that time.
	redrawEvery = time.Second
	// topLines is how many volumes are shown if the screen's size is unknown.
	topLines = 20
)

func (p *program) topCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show drivers, calls in flight and waiting volumes, live",
		Long: `Show what the daemon does now: the drivers with their calls in flight, and the
volumes that wait or have a call in flight, the longest wait first. On a terminal the
view is live until you type q; elsewhere, and as JSON or YAML, it is printed once,
with all drivers and volumes.`,
		Example: `  csi-volmgr top
  csi-volmgr top -o jsonpath='{.drivers[*].name}'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if screen, ok := p.stdout.(*os.File); ok && !structured(output) && term.IsTerminal(int(screen.Fd())) {
				ctx, end, err := quitKeys(cmd.Context(), p.stdin)
				if err != nil {
					return err
				}
				defer end()
				return p.topLive(ctx, screen, output)
			}
			return p.topOnce(cmd.Context(), output)
		},
	}
	outputFlag(cmd, &output)
	return cmd
}

// topDocument is the view as JSON or YAML.
type topDocument struct {
	Drivers []server.DriverStatus `json:"drivers"`
	Volumes []server.VolumeStatus `json:"volumes"`
}

func (p *program) topOnce(ctx context.Context, output string) error {
	c := p.client()
	defer c.Close()
	volumes, err := c.Volumes(ctx)
	if err != nil {
		return err
	}
	drivers, err := c.Drivers(ctx)
	if err != nil {
		return err
	}
	if structured(output) {
		return p.document(topDocument{drivers, volumes}, output)
	}
	text, err := topText(volumes, drivers, p.look(output))
	if err != nil {
		return err
	}
	return writeAll(p.stdout, text)
}

// activity is the state that two watches have reported so far.
type activity struct {
	mu      sync.Mutex // guards the fields below
	volumes map[state.VolumeID]server.VolumeStatus
	drivers map[state.DriverName]server.DriverStatus
	listed  int // watches that have listed what exists
}

// take returns a function that applies the events of a watch to items.
func take[K comparable, T any](a *activity, items map[K]T, key func(T) K) func(server.Event[T]) error {
	return func(e server.Event[T]) error {
		a.mu.Lock()
		defer a.mu.Unlock()
		switch e.Type {
		case "set":
			items[key(e.Item)] = e.Item
		case "gone":
			delete(items, key(e.Item))
		case "listed":
			a.listed++
		}
		return nil
	}
}

// text returns the present view; "" until both watches have listed what exists.
func (a *activity) text(v view) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.listed < 2 {
		return "", nil
	}
	return topText(slices.Collect(maps.Values(a.volumes)), slices.Collect(maps.Values(a.drivers)), v)
}

// topLive draws the view until it is interrupted or a watch fails.
func (p *program) topLive(interrupted context.Context, screen *os.File, output string) error {
	c := p.client()
	defer c.Close()
	a := &activity{
		volumes: map[state.VolumeID]server.VolumeStatus{}, drivers: map[state.DriverName]server.DriverStatus{},
	}
	failed := make(chan error, 2)
	ctx, cancel := context.WithCancel(interrupted)
	var watches sync.WaitGroup
	defer watches.Wait()
	defer cancel()
	watches.Go(func() {
		failed <- c.WatchVolumes(ctx, take(a, a.volumes, func(s server.VolumeStatus) state.VolumeID { return s.Volume.ID }))
	})
	watches.Go(func() {
		failed <- c.WatchDrivers(ctx, take(a, a.drivers, func(s server.DriverStatus) state.DriverName { return s.Name }))
	})
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case err := <-failed:
			if interrupted.Err() != nil {
				return nil // the user left the view
			}
			return err
		case <-timer.C:
		}
		// No colours: lines are cut to the screen's width, which would cut escape sequences.
		text, err := a.text(view{now: p.now(), wide: output == formWide})
		if err != nil {
			return err
		}
		if text != "" {
			if err := writeAll(screen, fit(text, screen)); err != nil {
				return err
			}
		}
		timer.Reset(redrawEvery)
	}
}

// fit returns a text cut to the screen's size, with the escape sequences that draw it over the last one.
func fit(text string, screen *os.File) string {
	columns, rows, err := term.GetSize(int(screen.Fd()))
	if err != nil {
		columns, rows = 80, topLines
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	var b strings.Builder
	b.WriteString("\x1b[H") // to the top left
	for _, line := range lines[:min(len(lines), max(1, rows-1))] {
		b.WriteString(short(line, columns) + "\x1b[K\r\n") // clear the rest of the line
	}
	b.WriteString("\x1b[J") // clear the lines below
	return b.String()
}

// topText returns the view as text.
func topText(volumes []server.VolumeStatus, drivers []server.DriverStatus, v view) (string, error) {
	slices.SortFunc(drivers, func(a, b server.DriverStatus) int { return cmp.Compare(a.Name, b.Name) })
	var busy []server.VolumeStatus
	calls, waiting, lost, up := 0, 0, 0, 0
	for _, s := range volumes {
		switch {
		case s.Quarantined != "":
			lost++
		case s.Call.Kind != plan.None:
			calls++
		case s.Held.Reason != "":
			waiting++
		default:
			continue
		}
		busy = append(busy, s)
	}
	for _, d := range drivers {
		if d.Up {
			up++
		}
	}
	slices.SortFunc(busy, func(a, b server.VolumeStatus) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Volume.ID, b.Volume.ID))
	})
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s: %d at rest, %d with a call in flight, %d waiting, %d that cannot be read; %s: %d up\n",
		count(len(volumes), "volume"), len(volumes)-len(busy), calls, waiting, lost, count(len(drivers), "driver"), up)
	if !v.wide {
		drivers = slices.DeleteFunc(drivers, idleBuiltin)
	}
	if len(drivers) > 0 {
		b.WriteString("\n")
		if err := writeTable(&b, topDrivers, drivers, v); err != nil {
			return "", err
		}
	}
	if len(busy) > 0 {
		b.WriteString("\n")
		if err := writeTable(&b, topVolumes, busy[:min(len(busy), topLines)], v); err != nil {
			return "", err
		}
	}
	if more := len(busy) - topLines; more > 0 {
		fmt.Fprintf(&b, "and %d more\n", more)
	}
	return b.String(), nil
}

var topDrivers = []column[server.DriverStatus]{
	{head: "DRIVER", value: func(d server.DriverStatus, _ view) string { return plain(string(d.Name)) }},
	{head: "UP", state: true, value: func(d server.DriverStatus, _ view) string {
		return yesNo(d.Up && len(d.Lacks) == 0)
	}},
	{head: "SINCE", value: func(d server.DriverStatus, v view) string { return v.age(d.Since) }},
	{head: "VOLUMES", value: func(d server.DriverStatus, _ view) string { return fmt.Sprint(d.Volumes) }},
	{head: "CALLS", value: func(d server.DriverStatus, _ view) string { return fmt.Sprint(d.Calls) }},
	{head: "PROBLEM", value: func(d server.DriverStatus, v view) string { return v.reason(driverProblem(d)) }},
}

var topVolumes = []column[server.VolumeStatus]{
	{head: "SINCE", value: func(s server.VolumeStatus, v view) string { return v.age(s.Since) }},
	{head: "VOLUME", value: func(s server.VolumeStatus, v view) string { return v.id(s.Volume.ID) }},
	{head: "DRIVER", value: func(s server.VolumeStatus, _ view) string {
		return orNone(plain(string(s.Volume.Spec.Driver)))
	}},
	{head: "STEP", value: func(s server.VolumeStatus, _ view) string { return orNone(stepOf(s)) }},
	{head: "WAITING FOR", value: func(s server.VolumeStatus, v view) string {
		return v.reason(cmp.Or(s.Quarantined, s.Progress, volumeReason(s)))
	}},
}
