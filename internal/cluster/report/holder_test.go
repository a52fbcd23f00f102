package report_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/cluster/report"
	"github.com/csi-volmgr/csi-volmgr/internal/host/outage"
	"github.com/csi-volmgr/csi-volmgr/test/fakeapi"
)

// daemon is a reporter that claims the node's name.
type daemon struct {
	*world
	stop func() error // ends the daemon, and returns what Run returned

	mu    sync.Mutex
	holds bool
	why   string
}

func (d *daemon) stands() (holds bool, why string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.holds, d.why
}

// daemonOf starts a daemon on a server that may have other daemons.
func daemonOf(t *testing.T, s *fakeapi.Server, i report.Instance, opts ...func(*report.Claimant)) *daemon {
	t.Helper()
	return daemonWith(t, s, i, func(*report.Config) {}, opts...)
}

// daemonWith is daemonOf with a changed configuration.
func daemonWith(t *testing.T, s *fakeapi.Server, i report.Instance, configure func(*report.Config), opts ...func(*report.Claimant)) *daemon {
	t.Helper()
	d := &daemon{world: &world{t: t, server: s, changed: make(chan struct{})}}
	core, storage := s.Clients(nil)
	c := report.Claimant{
		Instance: i,
		Standing: func(holds bool, why string) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.holds, d.why = holds, why
		},
	}
	for _, o := range opts {
		o(&c)
	}
	config := report.Config{Core: core, Storage: storage, NodeName: "n1", Volumes: d}
	configure(&config)
	d.reporter = report.New(config)
	d.reporter.Claim(c)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.reporter.Run(ctx) }()
	d.stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() { _ = d.stop() })
	synctest.Wait()
	return d
}

// watch shows all daemons the Node once a second for this time.
func watch(d time.Duration, all ...*daemon) {
	for end := time.Now().Add(d); ; time.Sleep(time.Second) {
		for _, one := range all {
			one.seeNode()
		}
		if !time.Now().Before(end) {
			return
		}
	}
}

func instance(id, boot string) report.Instance {
	return report.Instance{ID: id, Host: "host-" + id, PID: 7, Root: "/root-" + id, BootID: boot}
}

func used(n *corev1.Node) (all []string) {
	for _, v := range n.Status.VolumesInUse {
		all = append(all, string(v)[strings.LastIndex(string(v), "/")+1:])
	}
	slices.Sort(all)
	return all
}

// A second daemon with the node's name is refused while the first runs, and learns which one that is. On the Node it
// writes only its question.
//
// Faults: A176.
func TestASecondDaemonOfTheNameIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakeapi.New()
		s.Put(node())
		first := daemonOf(t, s, instance("a", "boot"))
		watch(0, first)
		first.use("v1")
		watch(time.Second, first)
		second := daemonOf(t, s, instance("b", "boot"))
		if holds, why := second.stands(); holds || why != report.NotRead {
			t.Errorf("before the Node is read: %v %q", holds, why)
		}
		second.use("v2")
		second.reporter.DriverUp(report.Driver{Name: "d.test", NodeID: "x"})
		second.seeNode()
		if holds, why := second.stands(); holds || !strings.Contains(why, "is asked whether it still runs") {
			t.Errorf("while it asks: %v %q", holds, why)
		}
		watch(3*time.Second, first, second)
		err := second.stop()
		var held *report.HeldError
		if !errors.Is(err, report.ErrNameTaken) || !errors.As(err, &held) || held.Holder.Root != "/root-a" ||
			!strings.Contains(err.Error(), "pid 7 on host host-a with --root-dir=/root-a") || !strings.Contains(err.Error(), "--node-name") {
			t.Errorf("got %v", err)
		}
		watch(time.Second, first)
		if holds, why := first.stands(); !holds || why != "" {
			t.Errorf("the first: %v %q", holds, why)
		}
		n := first.seeNode()
		if got := used(n); !slices.Equal(got, []string{"v1"}) || n.Annotations[report.ChallengeAnnotation] != "" || len(first.marks()) != 0 {
			t.Errorf("in use %q, annotations %q", got, n.Annotations)
		}
	})
}

// A daemon that has ended is replaced: at once if its own root restarts, and after a minute without an answer by
// another root. Volumes that the other daemon may have mounted in this boot stay in use; those from before a reboot
// do not.
//
// Faults: A176.
func TestTheNameOfADaemonThatHasEnded(t *testing.T) {
	for name, c := range map[string]struct {
		next report.Instance
		wait time.Duration
		used []string
	}{
		"its own restart":                      {instance("a", "boot"), 0, []string{"v2"}},
		"another root of this boot":            {instance("b", "boot"), time.Minute, []string{"v1", "v2"}},
		"another root, after a reboot":         {instance("b", "later"), time.Minute, []string{"v2"}},
		"its own restart, on a host restarted": {instance("a", "later"), 0, []string{"v2"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := fakeapi.New()
				s.Put(node())
				first := daemonOf(t, s, instance("a", "boot"))
				watch(0, first)
				first.use("v1")
				watch(time.Second, first)
				if err := first.stop(); err != nil {
					t.Fatal(err)
				}
				second := daemonOf(t, s, c.next)
				second.use("v2")
				began := time.Now()
				for holds, _ := second.stands(); !holds; holds, _ = second.stands() {
					watch(time.Second, second)
				}
				if took := time.Since(began); took < c.wait || took > c.wait+2*time.Second {
					t.Errorf("took %s, want %s", took, c.wait)
				}
				watch(5*time.Second, second)
				if got := used(second.seeNode()); !slices.Equal(got, c.used) {
					t.Errorf("in use %q, want %q", got, c.used)
				}
			})
		})
	}
}

// While a daemon was cut off, another took over its name. When it is back it makes nothing new. Its mounted volumes
// stay in use, beside those of the other, and the two do not write against each other. When the other has ended, it
// has the name again.
//
// Faults: A177.
func TestADaemonWhoseNameWasTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakeapi.New()
		s.Put(node())
		first := daemonOf(t, s, instance("a", "boot-a"))
		watch(0, first)
		first.use("v1")
		watch(time.Second, first)
		second := daemonOf(t, s, instance("b", "boot-b")) // on another host
		second.use("v2")
		watch(2*time.Minute, second)
		watch(3*time.Minute, first, second) // until both have both lists, with pauses after conflicts
		if holds, why := first.stands(); holds || !strings.Contains(why, "pid 7 on host host-b") || !strings.Contains(why, "took it over") {
			t.Errorf("the first: %v %q", holds, why)
		}
		if p := first.reporter.Findings(); !slices.ContainsFunc(p, func(f outage.Finding) bool { return strings.Contains(f.Text, "took it over") }) {
			t.Errorf("problems %v", p)
		}
		if holds, why := second.stands(); !holds || why != "" {
			t.Errorf("the second: %v %q", holds, why)
		}
		s.Took()
		watch(30*time.Second, first, second)
		if got := used(second.seeNode()); !slices.Equal(got, []string{"v1", "v2"}) {
			t.Errorf("in use %q", got)
		}
		if took := s.Took(); slices.Contains(took, "patch nodes/status n1") {
			t.Errorf("they write against each other: %q", took)
		}
		if err := second.stop(); err != nil {
			t.Fatal(err)
		}
		watch(5*time.Minute, first)
		if holds, why := first.stands(); !holds || why != "" {
			t.Errorf("the other has ended: %v %q", holds, why)
		}
	})
}

// If the daemon may not write the claim, it shows a problem and goes on.
//
// Faults: A178.
func TestWithoutTheRightToClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakeapi.New()
		s.Put(node())
		s.Fail(func(r fakeapi.Request) *fakeapi.Answer {
			if r.Verb == "patch" && r.Resource == "nodes" && r.Sub == "" {
				return &fakeapi.Answer{Code: 403}
			}
			return nil
		})
		d := daemonOf(t, s, instance("a", "boot"))
		watch(0, d)
		d.use("v1")
		watch(5*time.Second, d)
		if holds, why := d.stands(); !holds || why != "" {
			t.Errorf("%v %q", holds, why)
		}
		if got := used(d.seeNode()); !slices.Equal(got, []string{"v1"}) {
			t.Errorf("in use %q", got)
		}
		p := d.reporter.Findings()
		if !slices.ContainsFunc(p, func(f outage.Finding) bool {
			return f.Cause == outage.Refused && strings.Contains(f.Text, "is not noticed")
		}) {
			t.Errorf("problems %v", p)
		}
	})
}

// If the daemon starts without the API server, an instance that had the name last time goes on, and a new one waits.
//
// Faults: A178.
func TestAStartThatCannotReadTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakeapi.New()
		old := daemonOf(t, s, instance("a", "boot"), func(c *report.Claimant) { c.HeldBefore = true })
		if holds, why := old.stands(); !holds || why != "" {
			t.Errorf("%v %q", holds, why)
		}
		fresh := daemonOf(t, s, instance("b", "boot"))
		if holds, why := fresh.stands(); holds || why != report.NotRead {
			t.Errorf("%v %q", holds, why)
		}
		fresh.reporter.Node(nil) // now the Node is known not to exist
		synctest.Wait()
		if holds, why := fresh.stands(); holds || why != "" {
			t.Errorf("%v %q", holds, why)
		}
	})
}

// A kubelet that writes the Node's status is a second writer. Another program that does so is not, nor a kubelet that
// ran here before.
//
// Faults: A179.
func TestAKubeletOfTheName(t *testing.T) {
	at := func(manager string, seconds int) metav1.ManagedFieldsEntry {
		when := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, seconds, 0, time.UTC))
		e := metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, Time: &when}
		if manager != "csi-volmgr" {
			e.Subresource = "status"
		}
		return e
	}
	for name, c := range map[string]struct {
		before, after []metav1.ManagedFieldsEntry
		kubelet       bool
	}{
		"none":                       {nil, nil, false},
		"an agent":                   {[]metav1.ManagedFieldsEntry{at("agent", 1)}, []metav1.ManagedFieldsEntry{at("agent", 9)}, false},
		"a kubelet that has stopped": {[]metav1.ManagedFieldsEntry{at("kubelet", 1)}, []metav1.ManagedFieldsEntry{at("kubelet", 1)}, false},
		"a kubelet":                  {[]metav1.ManagedFieldsEntry{at("kubelet", 1)}, []metav1.ManagedFieldsEntry{at("kubelet", 9)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := fakeapi.New()
				n := node()
				n.ManagedFields = append(c.before, at("csi-volmgr", 5)) // as in the answer to the claim
				s.Put(n)
				d := daemonOf(t, s, instance("a", "boot"))
				watch(time.Second, d)
				d.use("v1")
				watch(time.Second, d)
				if holds, why := d.stands(); !holds || why != "" {
					t.Fatalf("before: %v %q", holds, why)
				}
				n = d.seeNode()
				n.ManagedFields = append(c.after, at("csi-volmgr", 5))
				s.Put(n)
				watch(time.Second, d)
				if _, why := d.stands(); (why != "") != c.kubelet || c.kubelet && !strings.Contains(why, "a kubelet writes the status of this Node") {
					t.Errorf("after: %q", why)
				}
				if got := d.seeNode().Status.VolumesInUse; !slices.Equal(got, []corev1.UniqueVolumeName{"kubernetes.io/csi/v1"}) {
					t.Errorf("in use %q", got)
				}
			})
		})
	}
}
