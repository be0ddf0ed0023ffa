package tokenizer

import "slices"

// A behavior says what becomes of the matches when text is cut at them.
type behavior int

const (
	removed            behavior = iota // the matches vanish
	isolated                           // each match is a piece
	mergedWithPrevious                 // a match ends the piece before it
	mergedWithNext                     // a match begins the piece behind it
	contiguous                         // neighbouring matches are one piece
)

func readBehavior(name string) (behavior, error) {
	names := []string{"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"}
	if i := slices.Index(names, name); i >= 0 {
		return behavior(i), nil
	}
	return 0, unsupported("split behavior", name, names...)
}

// cuts turns the spans of a pattern into pieces; it reuses spans.
func (b behavior) cuts(spans []span) []span {
	switch b {
	case removed:
		return slices.DeleteFunc(spans, func(sp span) bool { return sp.match })
	case isolated:
		return spans
	case mergedWithNext:
		slices.Reverse(spans)
		spans = merge(spans, func(match, previous bool) bool { return match && !previous })
		slices.Reverse(spans)
		return spans
	case mergedWithPrevious:
		return merge(spans, func(match, previous bool) bool { return match && !previous })
	default:
		return merge(spans, func(match, previous bool) bool { return match == previous })
	}
}

// merge joins each span that joins says so with the one handled before it.
func merge(spans []span, joins func(match, previous bool) bool) []span {
	out := spans[:0]
	previous := false
	for _, sp := range spans {
		if n := len(out); n > 0 && joins(sp.match, previous) {
			out[n-1].start = min(out[n-1].start, sp.start)
			out[n-1].end = max(out[n-1].end, sp.end)
		} else {
			out = append(out, sp)
		}
		previous = sp.match
	}
	return out
}
