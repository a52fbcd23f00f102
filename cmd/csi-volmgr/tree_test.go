package main

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/csi-volmgr/csi-volmgr/internal/host/holders"
	"github.com/csi-volmgr/csi-volmgr/internal/host/leftover"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/stats"
	"github.com/csi-volmgr/csi-volmgr/internal/tools/doctor"
)

// shows is what a verb prints in the scene in which everything is mounted.
type shows struct {
	args string
	as   any    // a pointer to the API's type
	path string // of one field
	want string // the field's value; "" for any
}

// acting are the verbs that show no object: they act and say so in a sentence, or print
// something other than an object.
var acting = []string{
	"adopt", "apply", "clone", "delete", "drain", "driver", "driver register", "driver unregister", "forget", "journal", "journal accept", "journal check", "journal export", "journal repair", "local-driver", "release",
	"retry", "run", "snapshot", "snapshot create", "snapshot restore", "snapshot schedule", "ui", "undrain", "uninstall", "volume", "volume release", "volume remove", "volume restore", "volume set", "volume unit",
}

// reading are all other verbs, by what they show.
func reading() map[string][]shows {
	return map[string][]shows{
		"get": {
			{"get pods", new(server.List[server.PodStatus]), "{.items[0].pod.name}", "web"},
			{"get pod web", new(server.PodStatus), "{.pod.name}", "web"},
			{"get volumes", new(server.List[server.VolumeStatus]), "{.items[1].volume.spec.driver}", string(nfs)},
			{"get drivers", new(server.List[server.DriverStatus]), "{.items[1].name}", string(nfs)},
			{"get pv", new(server.List[server.PVStatus]), "{.items[0].name}", "pv-data"},
			{"get pvc", new(server.List[server.ClaimStatus]), "{.items[0].name}", "data"},
			{"get snapshots", new(server.List[server.SnapshotStatus]), "{.items[0].boundVolumeSnapshotContentName}", "snapcontent-1"},
			{"get schedules", new(server.List[server.ScheduleStatus]), "{.items[0].snapshots[0]}", "monday"},
			{"get mounts", new(server.List[server.Mount]), "{.items[0].hostPath}", "/root/pods/web/cache"},
			{"get stats", new(server.List[stats.Status]), "{.items}", "[]"},
			{"get problems", new(server.List[server.Problem]), "{.items}", "[]"},
		},
		"describe": {
			{"describe pod web", new(server.PodStatus), "{.pod.name}", "web"},
			{"describe volume data", new(server.VolumeStatus), "{.volume.spec.handle}", "vol-1"},
			{"describe driver nfs.example.com", new(server.DriverStatus), "{.version}", "v4.11.0"},
		},
		"explain":     {{"explain pod web", new(server.Explanation), "{.verdict}", server.Fine}},
		"who":         {{"who data", new(holders.Report), "{.processes[0].name}", "rsync"}},
		"trace":       {{"trace pod web", new(server.List[server.EndedCall]), "{.items[0].code}", "Internal"}},
		"top":         {{"top", new(topDocument), "{.drivers[1].name}", string(nfs)}},
		"doctor":      {{"doctor", new(doctor.Report), "{.findings[0].check}", ""}},
		"gc":          {{"gc --dry-run", new(server.List[leftover.Item]), "{.items[0].path}", "/root/pods/a"}},
		"wait":        {{"wait pod web", new(server.Progress), "{.pod.pod.name}", "web"}},
		"version":     {{"version", new(map[string]server.Version), "{.daemon.node}", "n1"}},
		"volume list": {{"volume list", new(server.List[server.NamedVolume]), "{.items[0].name}", "shop_db"}},
		"watch":       nil, // get --watch; see TestWatchesHaveEveryForm

		"snapshot diff": nil, // one range a line; see testdata/script/snapshot.txtar
	}
}

// verbs returns the runnable commands of the program, except cobra's own.
func verbs() map[string]*cobra.Command {
	all := map[string]*cobra.Command{}
	root := new(program).root()
	var look func(*cobra.Command)
	look = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			if sub.Name() != "completion" && sub.Name() != "help" {
				all[strings.TrimPrefix(sub.CommandPath(), root.Name()+" ")] = sub
				look(sub)
			}
		}
	}
	look(root)
	return all
}

// A verb that prints an object has every output form, and any other verb has none.
func TestEveryVerbThatShowsSomethingHasEveryForm(t *testing.T) {
	r := newRig(t, mounted(fixed))
	for name, cmd := range verbs() {
		_, reads := reading()[name]
		if reads == slices.Contains(acting, name) {
			t.Errorf("%s: say in this test whether it shows things or acts", name)
		}
		flag := cmd.Flags().ShorthandLookup("o")
		if !reads {
			if flag != nil {
				t.Errorf("%s shows nothing, and has --output", name)
			}
			continue
		}
		if flag == nil || flag.Name != "output" || flag.DefValue != formTable || !strings.HasPrefix(flag.Value.Type(), "table|wide|json|yaml|") || !strings.HasSuffix(flag.Value.Type(), "|jsonpath=TEMPLATE") {
			t.Errorf("%s: --output is %+v", name, flag)
		}
		if r.do(t, append(append([]string{"__complete"}, strings.Fields(name)...), "-o", "")...); !strings.HasPrefix(r.stdout.String(), "table\nwide\njson\nyaml\n") || !strings.Contains(r.stdout.String(), "jsonpath=\n") {
			t.Errorf("%s: after -o a shell completes %q", name, r.stdout.String())
		}
	}
}

// Each verb prints the API's own type in JSON and YAML, a template finds a field in it, and
// the wide table has every word of the normal one.
func TestEveryFormOfWhatTheVerbsShow(t *testing.T) {
	for _, cases := range reading() {
		for _, tt := range cases {
			t.Run(tt.args, func(t *testing.T) {
				r := newRig(t, mounted(fixed))
				in := func(form string) string {
					t.Helper()
					// Doctor may find problems on the host of the test, and fails after it
					// has printed everything.
					code := r.do(t, append(strings.Fields(tt.args), "-o", form)...)
					if code != exitDone && (tt.args != "doctor" || code != exitFailed) {
						t.Fatalf("-o %s: exit code %d: %s", form, code, r.stderr.String())
					}
					return r.stdout.String()
				}
				decode := json.NewDecoder(strings.NewReader(in(formJSON)))
				decode.DisallowUnknownFields()
				if err := decode.Decode(tt.as); err != nil {
					t.Errorf("JSON: %v", err)
				}
				fromYAML := reflect.New(reflect.TypeOf(tt.as).Elem()).Interface()
				if err := yaml.UnmarshalStrict([]byte(in(formYAML)), fromYAML); err != nil || strings.HasPrefix(r.stdout.String(), "{") || tt.args != "doctor" && !reflect.DeepEqual(fromYAML, tt.as) {
					t.Errorf("YAML: %v: %+v and not %+v", err, fromYAML, tt.as)
				}
				if got := in(jsonPathForm + tt.path); got == "" || tt.want != "" && got != tt.want {
					t.Errorf("%s is %q, want %q", tt.path, got, tt.want)
				}
				wide := words(in(formWide))
				for word, n := range words(in(formTable)) {
					if wide[word] < n {
						t.Errorf("%q is in the table, and not in the wide one", word)
					}
				}
			})
		}
	}
}

// words counts the words of a table. It leaves out the id of a volume, which is longer in a
// wide table, and what changes on a host.
func words(table string) map[string]int {
	n := map[string]int{}
	for _, word := range strings.Fields(regexp.MustCompile(`\S*\^?vol-1\b|\S*…\S*|\S*/cache\b|[0-9]+`).ReplaceAllString(table, "")) {
		n[word]++
	}
	return n
}

func TestWatchesHaveEveryForm(t *testing.T) {
	for verb, kinds := range map[string]string{"watch": "pods volumes drivers pv pvc", "get --watch": "pods volumes drivers pv pvc"} {
		for kind := range strings.FieldsSeq(kinds) {
			for form, want := range map[string]string{
				formTable: "EVENT", formWide: "EVENT", formJSON: `{"type":"set"`, formYAML: "---", jsonPathForm + `{.type}{"\n"}`: "set",
			} {
				r := newRig(t, mounted(fixed))
				got := watched(t, r, 1, func(int) {}, append(strings.Fields(verb), kind, "-o", form)...)
				if len(got) == 0 || !strings.HasPrefix(got[0], want) {
					t.Errorf("%s %s -o %s: %q", verb, kind, form, got)
				}
			}
		}
	}
}

// Words are coloured on a terminal, if the user wants colours, and nowhere else.
func TestColoursAreForTerminals(t *testing.T) {
	for _, tt := range []struct {
		args, env string
		coloured  string
	}{
		{"get pods", "", "\x1b[33mMounting\x1b[0m"},
		{"get drivers -o wide", "", "\x1b[32mUp\x1b[0m"},
		{"explain pod web", "", "pod default/web: \x1b[31mstuck\x1b[0m\r\n"},
		{"get pods", "NO_COLOR=1", ""},
		{"get pods", "TERM=dumb", ""},
		{"get pods -o json", "", ""},
		{"explain pod web -o yaml", "", ""},
	} {
		t.Run(tt.args+" "+tt.env, func(t *testing.T) {
			t.Setenv("TERM", "xterm")
			t.Setenv("NO_COLOR", "")
			if name, value, ok := strings.Cut(tt.env, "="); ok {
				t.Setenv(name, value)
			}
			r := newRig(t, stuck(fixed))
			if code := r.do(t, strings.Fields(tt.args)...); code != exitDone || strings.Contains(r.stdout.String(), "\x1b") {
				t.Errorf("no terminal: exit code %d, %q", code, r.stdout.String())
			}
			plain := r.stdout.String()
			screen, other := terminal(t)
			r.program.stdout = screen
			shown := make(chan string)
			go func() {
				var b bytes.Buffer
				_, _ = io.Copy(&b, other) // until no process has the screen open
				shown <- b.String()
			}()
			code := r.run(t.Context(), append([]string{"--socket", r.socket}, strings.Fields(tt.args)...))
			_ = screen.Close()
			got := <-shown
			if code != exitDone || !strings.Contains(got, tt.coloured) || tt.coloured == "" && strings.Contains(got, "\x1b[3") {
				t.Errorf("terminal: exit code %d, %q, want %q in it", code, got, tt.coloured)
			}
			bare := regexp.MustCompile("\x1b\\[[0-9]+m").ReplaceAllString(strings.ReplaceAll(got, "\r\n", "\n"), "")
			if bare != plain {
				t.Errorf("but for colours it is\n%s\nand without a terminal\n%s", bare, plain)
			}
		})
	}
}

// Shell completion gets the names for every verb from the daemon.
func TestNamesAreCompletedAfterEveryVerb(t *testing.T) {
	const vol = "nfs.example.com^vol-1"
	after := map[string]string{ // command line: a possible completion
		"get pods": "web", "get volumes": vol, "get drivers": string(nfs), "get pv": "pv-data", "get pvc": "data", "get mounts": "web",
		"get mounts --pod": "web", "get pods -n": "shop",
		"watch pods": "web", "watch volumes": vol, "watch drivers": string(nfs), "watch pv": "pv-data", "watch pvc": "data",
		"describe pod": "web", "describe volume": vol, "describe driver": string(nfs),
		"explain pod": "web", "explain volume": vol, "explain driver": string(nfs), "explain snapshot": "monday", "explain pod -n shop": "till",
		"trace pod": "web", "trace volume": vol, "who": vol, "retry": vol, "retry snapshot": "monday", "forget": vol, "forget pvc": "data", "forget snapshot": "monday", "wait pod": "web",
		"delete pod": "web", "delete pvc": "data", "delete snapshot": "monday", "get snapshots": "monday", "watch snapshots": "monday",
		"snapshot create pvc": "data", "snapshot restore": "monday", "snapshot diff": "monday", "snapshot diff monday": "tuesday", "clone pvc": "data", "snapshot schedule pvc": "data", "get schedules": "data-daily", "delete schedule": "data-daily", "volume unit pod": "web", "volume unit pvc": "data", "volume release": "pv-data", "volume set pvc": "data", "volume remove": "shop_db", "volume restore": "shop_db.removed-20261128-135526", "doctor --driver": string(nfs),
		"retry data --step": "lazy", "volume set pvc data --reclaim": "Retain", "drain --wait": "unstaged",
	}
	r := newRig(t, mounted(fixed))
	for line, want := range after {
		r.do(t, append(append([]string{"__complete"}, strings.Fields(line)...), "")...)
		if !slices.Contains(strings.Split(r.stdout.String(), "\n"), want) {
			t.Errorf("%s TAB: %q, want %s in it", line, r.stdout.String(), want)
		}
	}
	for name, cmd := range verbs() {
		named := regexp.MustCompile(`NAME|VOLUME`).MatchString(cmd.Use)
		tried := slices.ContainsFunc(slices.Collect(maps.Keys(after)), func(line string) bool { return line == name || strings.HasPrefix(line, name+" ") })
		if named && !tried {
			t.Errorf("%s takes a name, and this test does not try it", cmd.Use)
		}
	}
	r.do(t, "__complete", "explain", "pod/")
	if !strings.HasPrefix(r.stdout.String(), "pod/web\n") {
		t.Errorf("explain pod/ TAB: %q", r.stdout.String())
	}
}

// The script for each shell asks the program for completions; the test runs bash's.
func TestShellsAskTheProgram(t *testing.T) {
	r := newRig(t, mounted(fixed))
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if code := r.do(t, "completion", shell); code != exitDone || !strings.Contains(r.stdout.String(), "__complete") {
			t.Errorf("%s: exit code %d", shell, code)
		}
		if shell != "bash" {
			continue
		}
		dir := t.TempDir()
		script := filepath.Join(dir, "script")
		if err := os.WriteFile(script, []byte(r.stdout.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		self, err := exec.LookPath("csi-volmgr") // testscript puts this program there
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "bash", "--norc", "-c", `. "$1"
_get_comp_words_by_ref() { cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words=("${COMP_WORDS[@]}") cword=$COMP_CWORD; }
__ltrim_colon_completions() { :; }
compopt() { :; }
COMP_WORDS=("$2" --socket "$3" explain pod "") COMP_CWORD=5 COMP_LINE="$2 --socket $3 explain pod " COMP_TYPE=9
COMP_POINT=${#COMP_LINE}
__start_csi-volmgr
printf '%s\n' "${COMPREPLY[@]}"`, "bash", script, self, r.socket)
		out, err := cmd.CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != "web" {
			t.Errorf("bash: %v: %q", err, out)
		}
	}
}
