package ui

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
)

// maxStreams bounds the pages that are open at once. Users other than root and the daemon's own share maxOthers of
// them, and each has maxOfOne, as many as a browser opens to one host: so one user cannot lock out the others.
const (
	maxStreams = 16
	maxOthers  = 12
	maxOfOne   = 6
)

// shares counts the open pages.
type shares struct {
	mu     sync.Mutex // guards the fields below
	all    int
	others int            // of users other than root and the daemon's own
	of     map[string]int // others, by visitor
}

// take counts one more page of a visitor until free is called.
func (s *shares) take(v visitor) (free func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.all >= maxStreams, !v.owner && s.others >= maxOthers:
		return nil, fmt.Errorf("%d pages are open, which is the maximum", s.all)
	case !v.owner && s.of[v.name] >= maxOfOne:
		return nil, fmt.Errorf("%s has %d pages open, which is the maximum", v.name, s.of[v.name])
	}
	s.count(v, 1)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.count(v, -1)
	}, nil
}

// count adds n to the counts of v; s.mu is held.
func (s *shares) count(v visitor, n int) {
	s.all += n
	if v.owner {
		return
	}
	s.others += n
	if s.of[v.name] += n; s.of[v.name] == 0 {
		delete(s.of, v.name)
	}
}

// visitor is who opened a connection: a user of this host, or an address.
type visitor struct {
	name  string
	owner bool // root, or the user of the daemon
}

// visitorOf returns who sent r.
func visitorOf(r *http.Request) visitor {
	remote, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return visitor{name: "an unknown address"}
	}
	if local, is := r.Context().Value(http.LocalAddrContextKey).(net.Addr); is {
		if to, err := netip.ParseAddrPort(local.String()); err == nil {
			if uid, known := userOf(remote, to); known {
				return visitor{name: fmt.Sprintf("user %d", uid), owner: uid == 0 || uid == os.Geteuid()}
			}
		}
	}
	return visitor{name: "address " + remote.Addr().Unmap().String()}
}

// userOf returns the user whose socket of this host is connected from one address to the other. The kernel lists
// sockets of IPv4 in one table and those of IPv6, which may have addresses of IPv4, in another.
func userOf(from, to netip.AddrPort) (uid int, known bool) {
	for _, table := range []string{"tcp", "tcp6"} {
		wide := table == "tcp6"
		row := entryOf(from, wide) + " " + entryOf(to, wide) + " 01" // established
		if uid, known = userIn("/proc/self/net/"+table, row); known {
			return uid, true
		}
	}
	return 0, false
}

// userIn finds the row of a table that has these addresses and this state.
func userIn(table, row string) (uid int, known bool) {
	f, err := os.Open(table)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		_, rest, _ := strings.Cut(lines.Text(), ": ")
		if !strings.HasPrefix(rest, row) {
			continue
		}
		if fields := strings.Fields(rest); len(fields) > 6 {
			uid, err := strconv.Atoi(fields[6])
			return uid, err == nil
		}
	}
	return 0, false
}

// entryOf returns an address as the tables have it: words of 32 bits in the machine's byte order. wide is IPv6's form.
func entryOf(a netip.AddrPort, wide bool) string {
	b := a.Addr().Unmap().AsSlice()
	if wide {
		all := a.Addr().As16()
		b = all[:]
	}
	var text strings.Builder
	for ; len(b) >= 4; b = b[4:] {
		var word [4]byte
		binary.BigEndian.PutUint32(word[:], binary.NativeEndian.Uint32(b))
		text.WriteString(strings.ToUpper(hex.EncodeToString(word[:])))
	}
	return fmt.Sprintf("%s:%04X", text.String(), a.Port())
}
