package gpucheck

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// margin is a line of graph/conformance: the case by its test, its error and its limit.
var margin = regexp.MustCompile(`margin (\S+): error (\S+) of (\S+)`)

// margins returns the margins of the compared operations, the smallest first.
func margins(raw []byte) []Margin {
	worst := map[string]Margin{}
	for _, m := range margin.FindAllStringSubmatch(string(raw), -1) {
		x := Margin{Case: m[1]}
		var bad [2]error
		x.Error, bad[0] = strconv.ParseFloat(m[2], 64)
		x.Limit, bad[1] = strconv.ParseFloat(m[3], 64)
		if path := strings.Split(m[1], "/"); bad == [2]error{} && x.Limit > 0 && len(path) > 2 {
			x.Operation = path[2] // after the test and its mode
			if old, ok := worst[x.Operation]; !ok || x.share() > old.share() {
				worst[x.Operation] = x
			}
		}
	}
	return slices.SortedFunc(maps.Values(worst), func(a, b Margin) int {
		return cmp.Or(cmp.Compare(b.share(), a.share()), cmp.Compare(a.Operation, b.Operation))
	})
}

func (m Margin) share() float64 { return m.Error / m.Limit }
