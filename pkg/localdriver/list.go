package localdriver

import (
	"sort"

	"google.golang.org/grpc/codes"
)

// page is which part of a list is asked for.
type page struct {
	token string // the id of the last entry of the page before; "" for the first
	limit int    // how many entries at most; 0 for all
}

func pageOf(req interface {
	GetStartingToken() string
	GetMaxEntries() int32
},
) page {
	return page{token: req.GetStartingToken(), limit: int(req.GetMaxEntries())}
}

// paginate cuts a page out of all, which is sorted by id, and returns the token
// of the next page, "" if there is none. Tokens stay good while entries come
// and go. One that was never given out is ABORTED (CSI 1.13 ListVolumes).
func paginate[T any](all []T, id func(T) string, p page) ([]T, string, error) {
	if p.limit < 0 {
		return nil, "", invalid("max_entries %d is negative", p.limit)
	}
	if p.token != "" {
		if !idPattern.MatchString(p.token) {
			return nil, "", refuse(codes.Aborted, "starting_token %q is not valid", p.token)
		}
		all = all[sort.Search(len(all), func(i int) bool { return id(all[i]) > p.token }):]
	}
	if p.limit == 0 || len(all) <= p.limit {
		return all, "", nil
	}
	return all[:p.limit], id(all[p.limit-1]), nil
}

func volumeID(v volume) string     { return v.ID }
func snapshotID(n snapshot) string { return n.ID }
