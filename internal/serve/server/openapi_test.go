package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/host/holders"
	"github.com/csi-volmgr/csi-volmgr/internal/host/leftover"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/audit"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/stats"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

var updateOpenAPI = flag.Bool("update-openapi", false, "write docs/reference/openapi.yaml anew")

// path is one documented request of the API.
type path struct {
	pattern, summary string
	// query has the query parameters, each "name: what it is".
	query []string
	// body is the request's body, answer the response: a T, or text.
	body, answer any
	// stream: the response has a line of JSON for each change.
	stream bool
	// event is a line of the response with watch=true; nil if there is none.
	event any
}

type text string

// paths returns all requests of the API on the socket, except those for browsers and debuggers.
func paths() []path {
	const watch = "watch: true for a stream: an event for each item, one of type listed, then one for each change"
	manifest := []string{"file: the manifest's name, for messages", "skipUnknown: true leaves out objects of kinds that csi-volmgr does not read"}
	frontEnd := "frontEnd: mount or nomad, for its own volumes; without it, all volumes are reached"
	reason := "reason: the operator's reason, for the audit log"
	return []path{
		{pattern: "GET /v1/version", summary: "The daemon's version and node", answer: Version{}},
		{pattern: "GET /v1/pods", summary: "The pods that are wanted on this node, and those that are being cleaned up", query: []string{watch}, answer: List[PodStatus]{}, event: Event[PodStatus]{}},
		{pattern: "GET /v1/pods/{ns}/{name}", summary: "One pod", answer: PodStatus{}},
		{pattern: "GET /v1/pods/{ns}/{name}/mounts", summary: "The mounts of a pod's volumes, for the agent that runs its containers", answer: List[Mount]{}},
		{pattern: "POST /v1/pods/{ns}/{name}/containers/{container}/mounts", summary: "The mounts of one container; creates and binds its subPaths", body: Container{}, answer: List[ContainerMount]{}},
		{pattern: "GET /v1/pods/{ns}/{name}/wait", summary: "Progress, a line for each change, until the pod reaches the goal or the timeout ends", query: []string{"for: mounted, verified or unmounted", "timeout: the maximum wait, such as 1m30s"}, answer: Progress{}, stream: true},
		{pattern: "DELETE /v1/pods/{ns}/{name}", summary: "Remove a pod whose containers have stopped", answer: Applied{}},
		{pattern: "GET /v1/mounts", summary: "The mounts of the volumes of all pods", answer: List[Mount]{}},
		{pattern: "GET /v1/volumes", summary: "The volumes on this node", query: []string{watch}, answer: List[VolumeStatus]{}, event: Event[VolumeStatus]{}},
		{pattern: "GET /v1/volumes/{id...}", summary: "One volume, by its id", answer: VolumeStatus{}},
		{pattern: "GET /v1/drivers", summary: "The drivers", query: []string{watch}, answer: List[DriverStatus]{}, event: Event[DriverStatus]{}},
		{pattern: "POST /v1/drivers", summary: "Register a driver that does not register itself, also after restarts", query: []string{"endpoint: the path of its socket", "controller: where its controller is, if not there: an absolute path, or tcp://host:port", "controllerCA: the file of the authority that signed the certificate of a tcp:// controller", "controllerCert: the file of this node's certificate for it", "controllerKey: the file of its key"}, answer: Applied{}},
		{pattern: "DELETE /v1/drivers/{name}", summary: "End such a registration", answer: Applied{}},
		{pattern: "GET /v1/claims", summary: "The claims", query: []string{watch}, answer: List[ClaimStatus]{}, event: Event[ClaimStatus]{}},
		{pattern: "GET /v1/schedules", summary: "The schedules of snapshots", answer: List[ScheduleStatus]{}},
		{pattern: "PUT /v1/schedules/{ns}/{name}", summary: "Create or change a schedule of snapshots", body: ScheduleRequest{}, answer: Applied{}},
		{pattern: "DELETE /v1/schedules/{ns}/{name}", summary: "Remove a schedule; its snapshots stay", answer: Applied{}},
		{pattern: "GET /v1/groupsnapshots", summary: "The group snapshots", query: []string{watch}, answer: List[GroupSnapshotStatus]{}, event: Event[GroupSnapshotStatus]{}},
		{pattern: "POST /v1/groupsnapshots/{ns}/{name}/retry", summary: "End a group snapshot's wait after a failure", answer: Applied{}},
		{pattern: "DELETE /v1/groupsnapshots/{ns}/{name}", summary: "Delete a group snapshot with all its snapshots; if its deletionPolicy is Retain, it stays and the answer's note says where", query: []string{reason, "data: true to delete it even if its deletionPolicy is Retain"}, answer: Applied{}},
		{pattern: "GET /v1/snapshots", summary: "The snapshots", query: []string{watch}, answer: List[SnapshotStatus]{}, event: Event[SnapshotStatus]{}},
		{pattern: "GET /v1/snapshots/{ns}/{name}/blocks", summary: "The ranges of a snapshot that hold data, or that changed since another snapshot; the last line says how the answer ended. Only for root", query: []string{"base: the name of an older snapshot of the same volume"}, answer: BlocksLine{}, stream: true},
		{pattern: "DELETE /v1/snapshots/{ns}/{name}", summary: "Delete a snapshot; if its deletionPolicy is Retain, it stays and the answer's note says where", query: []string{reason, "data: true to delete it even if its deletionPolicy is Retain"}, answer: Applied{}},
		{pattern: "PUT /v1/claims/{ns}/{name}/reclaim-policy", summary: "Say whether the volume that csi-volmgr made for a claim goes with it", answer: Applied{}, query: []string{"policy: Retain or Delete"}},
		{pattern: "POST /v1/persistentvolumes/{name}/release", summary: "Give a volume free that a claim had which is gone", answer: Applied{}, query: []string{reason}},
		{pattern: "POST /v1/snapshots/{ns}/{name}/retry", summary: "End a snapshot's wait after a failure", answer: Applied{}},
		{pattern: "DELETE /v1/claims/{ns}/{name}", summary: "Delete a claim and its data; if the volume's reclaimPolicy is Retain, it stays and the answer's note says where", query: []string{reason, "data: true to delete the volume even if its reclaimPolicy is Retain"}, answer: Applied{}},
		{pattern: "GET /v1/persistentvolumes", summary: "The persistent volumes", query: []string{watch}, answer: List[PVStatus]{}, event: Event[PVStatus]{}},
		{pattern: "GET /v1/objects/{kind}", summary: "The objects of a kind, such as Secret, that the sources have: their names, not their values", answer: List[Object]{}},
		{pattern: "GET /v1/stats", summary: "How full and how healthy volumes are, by their drivers' last answers", answer: List[stats.Status]{}},
		{pattern: "GET /v1/problems", summary: "What the sources could not read", answer: List[Problem]{}},
		{pattern: "GET /v1/sockets", summary: "The registration sockets", answer: List[SocketStatus]{}},
		{pattern: "POST /v1/apply", summary: "Create or update all objects of a manifest, or none", query: manifest, body: text(""), answer: List[Applied]{}},
		{pattern: "POST /v1/check", summary: "Check whether a manifest could be applied; apply nothing", query: manifest, body: text(""), answer: List[Applied]{}},
		{pattern: "POST /v1/withdraw", summary: "Withdraw the objects of a manifest, except claims and snapshots", query: manifest, body: text(""), answer: List[Applied]{}},
		{pattern: "GET /v1/explain/{kind}/{name...}", summary: "Explain the state of a pod, pvc, snapshot, groupsnapshot, volume or driver", answer: Explanation{}},
		{pattern: "GET /v1/trace", summary: "The last calls of every volume", answer: List[EndedCall]{}},
		{pattern: "GET /v1/trace/{kind}/{name...}", summary: "The last calls of a volume, or of a pod's volumes", answer: List[EndedCall]{}},
		{pattern: "GET /v1/who", summary: "Who holds a volume or a path", query: []string{"volume: its name", "path: a path of this host, instead of a volume"}, answer: holders.Report{}},
		{pattern: "GET /v1/named", summary: "The volumes that Docker, podman, mount -t csi and Nomad name", answer: List[NamedVolume]{}},
		{pattern: "GET /v1/named/{name...}", summary: "One of them, with its current holders", answer: NamedVolume{}},
		{pattern: "POST /v1/named", summary: "Create a volume and wait for its storage; a larger size expands it", body: NamedRequest{}, answer: NamedVolume{}},
		{pattern: "PATCH /v1/named/{name...}", summary: "Change the size, owner, mode or reclaim policy of a volume", body: NamedChange{}, answer: NamedVolume{}},
		{pattern: "POST /v1/named-mounts/{name...}", summary: "Mount a volume; it stays mounted while the kernel shows a holder", query: []string{frontEnd}, answer: NamedMount{}},
		{pattern: "DELETE /v1/named/{name...}", summary: "Remove a volume; if its data stays, the note says where", query: []string{frontEnd, "namespace: Nomad's namespace that asks; without it, those of each are reached"}, answer: Removed{}},
		{pattern: "GET /v1/named-kept", summary: "The data of removed volumes that is kept", answer: List[NamedVolume]{}},
		{pattern: "POST /v1/named-restores/{name...}", summary: "Make a volume again from the data of a removed one", query: []string{"as: the volume's name; without it, the removed one's"}, answer: NamedVolume{}},
		{pattern: "GET /v1/leftovers", summary: "Files below the root that no record explains", answer: List[leftover.Item]{}},
		{pattern: "POST /v1/gc", summary: "Remove the leftovers that are safe to remove", query: []string{"uses: lost, to end also uses that no process has and whose engine runs"}, answer: List[leftover.Item]{}},
		{pattern: "GET /v1/storage", summary: "The volumes and snapshots of drivers that no record of this node knows", answer: Unowned{}},
		{pattern: "POST /v1/recovery/accept", summary: "State that no pod uses the mounts without a record", query: []string{reason}, answer: List[Place]{}},
		{pattern: "POST /v1/forget/{id...}", summary: "Drop a record", query: []string{reason, "mounted: true to drop it even if it is mounted"}, answer: Applied{}},
		{pattern: "POST /v1/claims/{ns}/{name}/forget", summary: "Drop the record of a claim's volume without a call", query: []string{reason, "gone: true if the driver will not come back"}, answer: Applied{}},
		{pattern: "POST /v1/snapshots/{ns}/{name}/forget", summary: "Drop the record of a snapshot without a call", query: []string{reason, "gone: true if the driver will not come back"}, answer: Applied{}},
		{pattern: "POST /v1/retry/{id...}", summary: "End the pauses of a volume, or make its failing unmount by a given step", query: []string{"step: force or lazy", reason}, answer: Applied{}},
		{pattern: "GET /v1/drain", summary: "The node's drain", answer: Drain{}},
		{pattern: "POST /v1/drain", summary: "Drain the node", query: []string{"mode: hold or empty", reason}, answer: Drain{}},
		{pattern: "DELETE /v1/drain", summary: "End the drain, or only one of mode empty", query: []string{"mode: empty, or none"}, answer: Drain{}},
		{pattern: "GET /metrics", summary: "Metrics for Prometheus", answer: text("")},
	}
}

// undocumented has the prefixes of patterns for browsers and debuggers, and the pattern of unknown paths.
var undocumented = []string{"/", "GET /ui/", "/debug/pprof/"}

var variable = regexp.MustCompile(`\{(\w+)(\.\.\.)?\}`)

// document returns the API as OpenAPI, and its schemas.
func document(t *testing.T) ([]byte, *schemas) {
	t.Helper()
	s := newSchemas(t)
	failure := s.of(reflect.TypeFor[Error]())
	all := map[string]map[string]any{}
	for _, p := range paths() {
		method, route, _ := strings.Cut(p.pattern, " ")
		var parameters []any
		for _, m := range variable.FindAllStringSubmatch(route, -1) {
			one := schema{"name": m[1], "in": "path", "required": true, "schema": schema{"type": "string"}}
			if m[2] != "" {
				one["description"] = "it may hold slashes"
			}
			parameters = append(parameters, one)
		}
		for _, q := range p.query {
			name, what, _ := strings.Cut(q, ": ")
			parameters = append(parameters, schema{"name": name, "in": "query", "description": what, "schema": schema{"type": "string"}})
		}
		answer := s.content(p.answer, p.stream)
		if p.event != nil {
			answer["application/jsonl"] = schema{"schema": s.of(reflect.TypeOf(p.event))}
		}
		operation := map[string]any{"summary": p.summary, "responses": map[string]any{
			"200":     schema{"description": "it is so", "content": answer},
			"default": schema{"description": "it is not", "content": schema{"application/json": schema{"schema": failure}}},
		}}
		if parameters != nil {
			operation["parameters"] = parameters
		}
		if p.body != nil {
			operation["requestBody"] = schema{"content": s.content(p.body, false)}
		}
		route = variable.ReplaceAllString(route, "{$1}")
		if all[route] == nil {
			all[route] = map[string]any{}
		}
		all[route][strings.ToLower(method)] = operation
	}
	b, err := json.Marshal(map[string]any{
		"openapi": "3.1.0",
		"info": schema{
			"title": "csi-volmgr", "version": "v1",
			"description": "The API of a node, on a unix socket. Fields are added within v1; none is renamed or removed.",
		},
		"servers":    []any{schema{"url": "http://localhost", "description": "by the unix socket of --socket; the host is not looked at"}},
		"paths":      all,
		"components": schema{"schemas": s.named},
	})
	if err != nil {
		t.Fatal(err)
	}
	out, err := yaml.JSONToYAML(b)
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte("# Written from the types of the answers and their comments by make docs; a test compares.\n"), out...), s
}

func (s *schemas) content(v any, stream bool) schema {
	switch _, plain := v.(text); {
	case plain:
		return schema{"text/plain": schema{"schema": schema{"type": "string"}}}
	case stream:
		return schema{"application/jsonl": schema{"schema": s.of(reflect.TypeOf(v))}}
	default:
		return schema{"application/json": schema{"schema": s.of(reflect.TypeOf(v))}}
	}
}

// patterns returns the patterns in the server's code.
func patterns(t *testing.T) (found []string) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") || name == "health.go" { // health.go serves the port
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) != 2 {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !strings.HasPrefix(sel.Sel.Name, "Handle") {
				return true
			}
			if lit, ok := call.Args[0].(*ast.BasicLit); ok {
				pattern, err := strconv.Unquote(lit.Value)
				if err != nil {
					t.Fatal(err)
				}
				if !slices.ContainsFunc(undocumented, func(prefix string) bool {
					return pattern == prefix || len(prefix) > 1 && strings.HasPrefix(pattern, prefix)
				}) {
					found = append(found, pattern)
				}
			}
			return true
		})
	}
	return found
}

// The document has exactly the server's paths, and is generated from the types of the answers.
func TestOpenAPIDocumentIsOfThisServer(t *testing.T) {
	served, documented := patterns(t), []string{}
	for _, p := range paths() {
		documented = append(documented, p.pattern)
	}
	slices.Sort(served)
	slices.Sort(documented)
	if d := cmp.Diff(slices.Compact(served), documented); d != "" {
		t.Errorf("served and documented (+): %s", d)
	}
	const file = "../../../docs/reference/openapi.yaml"
	want, _ := document(t)
	if *updateOpenAPI {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not of this server (%v): run make docs\n%s", file, err, cmp.Diff(string(got), string(want)))
	}
}

// operator answers every request with all fields set.
type operator struct{ t *testing.T }

func (o operator) Who(context.Context, WhoQuery) (holders.Report, error) {
	return filled[holders.Report](o.t), nil
}

func (o operator) Leftovers(context.Context, audit.By, GC) ([]leftover.Item, error) {
	return filled[[]leftover.Item](o.t), nil
}

func (o operator) Unowned(context.Context) (Unowned, error) { return filled[Unowned](o.t), nil }

func (o operator) ReleaseVolume(context.Context, audit.By, Release) (string, error) { return "n", nil }

func (o operator) SetReclaim(context.Context, audit.By, Reclaim) (string, error) { return "v", nil }

func (o operator) Blocks(_ context.Context, _ BlocksQuery, each func([]BlockRange) error) (int64, error) {
	return 1, errors.Join(each(filled[[]BlockRange](o.t)), errors.New("the rest is lost"))
}
func (o operator) Forget(context.Context, audit.By, Forget) (string, error) { return "", nil }
func (o operator) Retry(context.Context, audit.By, Retry) error             { return nil }
func (o operator) AcceptRecovery(context.Context, audit.By, string) ([]state.Place, error) {
	return filled[[]state.Place](o.t), nil
}
func (o operator) SetDrain(context.Context, audit.By, Drain) error { return nil }
func (o operator) EndEmptying(context.Context, audit.By) error     { return nil }
func (o operator) Draining() Drain                                 { return filled[Drain](o.t) }

func (o operator) RegisterDriver(context.Context, audit.By, Registration) (Registered, error) {
	return filled[Registered](o.t), nil
}
func (o operator) UnregisterDriver(context.Context, audit.By, state.DriverName) error { return nil }

func (o operator) Stats(context.Context) []stats.Status { return filled[[]stats.Status](o.t) }
func (o operator) LastStats() []stats.Status            { return filled[[]stats.Status](o.t) }

func (o operator) ContainerMounts(context.Context, Container) ([]ContainerMount, error) {
	return filled[[]ContainerMount](o.t), nil
}

func (o operator) Whole([]Mount) []Mount { return filled[[]Mount](o.t) }

// The server's answers, with every field set, match the document.
func TestAnswersAreAsDocumented(t *testing.T) {
	facts := filled[Facts](t)
	facts.Pods[0].Pod.Namespace = "default"
	facts.Snapshots, facts.Groups = nil, nil // the backend's own
	b, o := newBackend(facts), operator{t}
	b.containers = o
	cfg := config(t, b)
	cfg.Catalog = func(string) []Object { return filled[[]Object](t) }
	cfg.Operator, cfg.Drainer, cfg.Registrar, cfg.Stats, cfg.Named, cfg.Storage = o, o, o, o, o, o
	start(t, cfg)
	_, s := document(t)
	fillIn := strings.NewReplacer("{ns}/{name}/retry", "default/monday/retry", "{ns}", "default", "{name}", "web", "{container}", "c", "{id...}", "web", "{kind}", "pod", "{name...}", "default/web")
	queries := map[string]string{
		"GET /v1/who": "?volume=web", "POST /v1/forget/{id...}": "?reason=x", "POST /v1/claims/{ns}/{name}/forget": "?reason=x", "POST /v1/snapshots/{ns}/{name}/forget": "?reason=x", "POST /v1/recovery/accept": "?reason=x", "POST /v1/drain": "?mode=hold",
		"GET /v1/pods/{ns}/{name}/wait": "?for=unmounted&timeout=1ms",
	}
	for _, p := range paths() {
		method, route, _ := strings.Cut(p.pattern, " ")
		code, answer := unixGet(t, cfg.Socket, method, fillIn.Replace(route)+queries[p.pattern], strings.NewReader("{}"))
		if code != 200 {
			t.Errorf("%s: %d %s", p.pattern, code, answer)
			continue
		}
		if _, plain := p.answer.(text); plain {
			continue
		}
		is := s.of(reflect.TypeOf(p.answer))
		for line := range strings.Lines(answer) {
			var v any
			if err := json.Unmarshal([]byte(line), &v); err != nil {
				t.Fatalf("%s: %v: %s", p.pattern, err, line)
			}
			for _, problem := range s.problems(p.pattern, is, v) {
				t.Error(problem)
			}
		}
	}
	code, answer := unixGet(t, cfg.Socket, "GET", "/v1/pods/default/missing", nil)
	var v any
	if err := json.Unmarshal([]byte(answer), &v); err != nil || code != 404 {
		t.Fatalf("%d %s", code, answer)
	}
	for _, problem := range s.problems("an error", s.of(reflect.TypeFor[Error]()), v) {
		t.Error(problem)
	}
}

// The comparison with the document finds additional and missing fields, and those of another type.
func TestWhatIsNotAsDocumentedIsSeen(t *testing.T) {
	_, s := document(t)
	is := s.of(reflect.TypeFor[List[Applied]]())
	for answer, want := range map[string]string{
		`{"items":[{"kind":"k","name":"n","result":"r"}]}`:          "",
		`{"items":[{"kind":"k","name":"n","result":"r","more":1}]}`: "is not documented",
		`{"items":[{"kind":"k","name":"n"}]}`:                       "always there",
		`{"items":[{"kind":1,"name":"n","result":"r"}]}`:            "is integer",
		`{"items":null}`: "is null",
	} {
		var v any
		if err := json.Unmarshal([]byte(answer), &v); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(s.problems("x", is, v), "; "); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", answer, got, want)
		}
	}
}

func (o operator) NamedVolumes(context.Context) ([]NamedVolume, error) {
	return filled[[]NamedVolume](o.t), nil
}

func (o operator) NamedVolume(context.Context, string) (NamedVolume, error) {
	return filled[NamedVolume](o.t), nil
}

func (o operator) CreateNamed(context.Context, NamedRequest) error { return nil }

func (o operator) ChangeNamed(context.Context, string, NamedChange) error { return nil }

func (o operator) MountNamed(context.Context, string, string) (string, error) { return "/path", nil }

func (o operator) KeptNamed(context.Context) ([]NamedVolume, error) { return nil, nil }

func (o operator) RestoreNamed(context.Context, string, string) (NamedVolume, error) {
	return NamedVolume{Name: "db"}, nil
}

func (o operator) RemoveNamed(context.Context, NamedRemoval) (string, error) { return "note", nil }
