package first

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// fullDisk is a disk of the journal that another program fills up, to a level at which nothing new is begun.
func fullDisk() failure {
	const create = "csi-volmgr apply -f "
	var base string
	return failure{
		meets: func(p *place) string {
			seed := uint64(time.Now().UnixNano())
			p.T.Logf("seed %d", seed)
			p.must(os.Mkdir(p.Path("state"), 0o700))
			p.must(unix.Mount("tmpfs", p.Path("state"), "tmpfs", 0, "size=4m,mode=700"))
			p.begins("csi-volmgr run --http-address=127.0.0.1:0")
			log, err := os.ReadFile(p.daemon.Log())
			p.must(err)
			base = "http://" + p.next(string(log), `http=(127\S+)`)
			p.ready(base, 200, "ok")
			p.fill(rand.New(rand.NewPCG(seed, 0)).Int64N(60) * 4096)
			said := p.fails(create + p.write("web.yaml", scratch, 0o644))
			for _, told := range []string{p.does("csi-volmgr get problems"), p.ready(base, 503, "the disk of the journal is full")} {
				if !strings.Contains(told, "df -h "+p.Path("state")) {
					p.T.Errorf("no command in: %s", told)
				}
			}
			return said
		},
		cause: "the disk of the journal is full", next: `look with: (df -h \S+)`,
		types: func(p *place, command string) {
			if said := p.does(command); !regexp.MustCompile(`9\d%|100%`).MatchString(said) {
				p.T.Errorf("%s:\n%s", command, said)
			}
			p.must(os.Remove(p.Path("state/rest")))
			p.ready(base, 200, "ok") // before any other write
			if said := p.types("csi-volmgr get problems"); strings.Contains(said.Stdout, "disk") {
				p.T.Errorf("with room again: %s", said.Stdout)
			}
			p.does(create + p.Path("web.yaml"))
			p.mounts()
			p.daemon.Stop()
			p.must(unix.Unmount(p.Path("state"), unix.MNT_DETACH))
		},
	}
}

// fill fills the disk of the journal, but for free bytes.
func (p *place) fill(free int64) {
	p.T.Helper()
	f, err := os.Create(p.Path("state/rest"))
	p.must(err)
	defer f.Close()
	size := int64(0)
	for err == nil {
		var n int
		n, err = f.Write(make([]byte, 4096))
		size += int64(n)
	}
	p.must(f.Truncate(max(0, size-free)))
}

// ready waits until /readyz answers with a code and with words, and returns the answer: the daemon answers on its
// socket before its sources have listed their pods.
func (p *place) ready(base string, code int, words string) (answer string) {
	p.T.Helper()
	p.Eventually(fmt.Sprintf("/readyz to answer %d %s", code, words), func() bool {
		r, err := http.Get(base + "/readyz")
		p.must(err)
		defer r.Body.Close()
		body, err := io.ReadAll(r.Body)
		p.must(err)
		answer = string(body)
		return r.StatusCode == code && strings.Contains(answer, words)
	})
	return answer
}
