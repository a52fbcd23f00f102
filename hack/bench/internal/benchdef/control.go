package benchdef

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
)

// DriverStats is what the driver's control socket returns.
type DriverStats struct {
	Calls    map[string]int64     `json:"calls"`
	Conns    int64                `json:"conns"`
	CPU      float64              `json:"cpu_s"`
	RSS      float64              `json:"rss_mb"`
	Staged   int                  `json:"staged"`
	Publshed int                  `json:"published"`
	Timeline map[string]VolumeLog `json:"timeline,omitempty"`
}

// VolumeLog has the wall-clock times (Unix ns) of a volume's calls.
type VolumeLog struct {
	StageStart, StageEnd, PubStart, PubEnd         int64
	UnpubStart, UnpubEnd, UnstageStart, UnstageEnd int64
}

// Ctl talks to a control socket (driver or fakeapi).
type Ctl struct{ c *http.Client }

// NewCtl returns a client; it connects at the first call.
func NewCtl(sock string) *Ctl {
	if sock == "" {
		return nil
	}
	return &Ctl{&http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", sock)
	}}}}
}

func (c *Ctl) get(path string, into any) error {
	r, err := c.c.Get("http://x" + path)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	if r.StatusCode != 200 {
		return fmt.Errorf("%s: %s: %s", path, r.Status, bytes.TrimSpace(b))
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(b, into)
}

// Stats returns the counters; with timeline also each volume's times.
func (c *Ctl) Stats(timeline bool) (s DriverStats, err error) {
	if c == nil {
		return
	}
	p := "/stats"
	if timeline {
		p += "?timeline=1"
	}
	err = c.get(p, &s)
	return
}

// Reset clears counters and timeline.
func (c *Ctl) Reset() error {
	if c == nil {
		return nil
	}
	return c.get("/reset", nil)
}

// Counts reads a map of counters from /counts (fakeapi).
func (c *Ctl) Counts() (m map[string]int64) {
	if c == nil {
		return nil
	}
	_ = c.get("/counts", &m)
	return
}

// Do sends fakeapi a command, which is a path.
func (c *Ctl) Do(path string) error { return c.get(path, nil) }

// Diff subtracts counter maps.
func Diff(a, b map[string]int64) map[string]int64 {
	m := map[string]int64{}
	for k, v := range b {
		if d := v - a[k]; d != 0 {
			m[k] = d
		}
	}
	return m
}
