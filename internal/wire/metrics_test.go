package wire

import (
	"context"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/csi-volmgr/csi-volmgr/pkg/csiclient"
)

// described is a registry that records the names and labels of the registered metrics.
type described struct {
	*prometheus.Registry
	lines []string
}

var (
	metricName = regexp.MustCompile(`fqName: "(\w+)"`)
	labelNames = regexp.MustCompile(`variableLabels: \{([^}]*)\}`)
)

func (d *described) Register(c prometheus.Collector) error {
	descs := make(chan *prometheus.Desc)
	go func() {
		c.Describe(descs)
		close(descs)
	}()
	for one := range descs {
		text := one.String()
		d.lines = append(d.lines, metricName.FindStringSubmatch(text)[1]+" "+strings.ReplaceAll(labelNames.FindStringSubmatch(text)[1], ",", " "))
	}
	return d.Registry.Register(c)
}

func (d *described) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		if err := d.Register(c); err != nil {
			panic(err)
		}
	}
}

type noTokens struct{}

func (noTokens) Token(context.Context, csiclient.TokenRequest) (csiclient.Token, error) {
	return csiclient.Token{Expires: time.Now()}, nil
}

// The reference page has each metric with its labels, and no other.
//
// Faults: A127.
func TestMetricsAreAsDocumented(t *testing.T) {
	c, d := dirs(t), &described{Registry: prometheus.NewRegistry()}
	c.Metrics, c.Tokens = d, noTokens{}
	start(t, c)
	page, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	word := regexp.MustCompile("`([a-z_]+)`")
	var documented []string
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || !strings.Contains(cells[1], "`") {
			continue
		}
		var labels []string
		for _, l := range word.FindAllStringSubmatch(cells[2], -1) {
			labels = append(labels, l[1])
		}
		for _, name := range word.FindAllStringSubmatch(cells[1], -1) {
			documented = append(documented, name[1]+" "+strings.Join(labels, " "))
		}
	}
	slices.Sort(documented)
	slices.Sort(d.lines)
	if diff := cmp.Diff(documented, d.lines); diff != "" {
		t.Errorf("documented and registered (+): %s", diff)
	}
}
