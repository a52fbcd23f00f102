package localdriver

import (
	"sort"

	"google.golang.org/grpc/codes"
)

// page is the requested part of a list.
type page struct {
	token string // the id of the last entry of the previous page; "" for the first page
	limit int    // the maximum number of entries; 0 means all
}

func pageOf(req interface {
	GetStartingToken() string
	GetMaxEntries() int32
},
) page {
	return page{token: req.GetStartingToken(), limit: int(req.GetMaxEntries())}
}

// paginate returns a page of all, which is sorted by id, and the token of the next page, or "" if
// there is none. Tokens stay valid when entries are added or removed. A token that was never issued
// is ABORTED (CSI 1.13 ListVolumes).
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
